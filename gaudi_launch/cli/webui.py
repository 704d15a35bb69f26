"""``gaudi-launch webui``: a chat page in the browser."""

from __future__ import annotations

import typer

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def webui(
    server: str = typer.Argument(..., metavar="URL|NAME", help="A server's address, or a service's name."),
    host: str = typer.Option("127.0.0.1", "-u", "--host", metavar="ADDRESS", help="Address to listen on."),
    port: str = typer.Option("7860", "-p", "--port", metavar="PORT", help="Port to listen on."),
    system: str = typer.Option("", "--system", metavar="TEXT", help="What the model is told before everything."),
    model: str | None = typer.Option(None, "--model", help="The model's name in requests."),
    tokens: str | None = typer.Option(None, "--max-tokens", metavar="N", help="Longest answer."),
    temperature: str | None = typer.Option(
        None, "--temperature", metavar="T", help="0 to 2; default: the server's."
    ),
    title: str = typer.Option("gaudi-launch", "--title", help="The page's title."),
    patience: str = typer.Option("120", "--patience", metavar="SECONDS", help="Longest silence of the server."),
) -> None:
    """Serve a chat page for a server, without any other network; Ctrl-C ends it. Needs the extra 'webui' (Gradio).

    The server's key (VLLM_API_KEY) stays here: whoever reaches the page may talk with the model.
    """
    import asyncio
    import ipaddress
    import sys

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.measure.client import Client, ServerError
    from gaudi_launch.measure.conversation import begin
    from gaudi_launch.measure.run import problem
    from gaudi_launch.messages import text
    from gaudi_launch.planning.asked import fraction, number
    from gaudi_launch.planning.asked import port as read_port
    from gaudi_launch.services.ready import port_free
    from gaudi_launch.services.target import api_key, target

    listening = read_port("-p", port)
    found = target(server)
    longest = number("--max-tokens", tokens) if tokens is not None else None
    warm = float(fraction("--temperature", temperature, 0.0, 2.0)) if temperature is not None else None
    client = Client(found.url, api_key=api_key(), patience=number("--patience", patience))
    try:
        from gaudi_launch.measure import webui as pages
    except ImportError:
        raise LaunchError("measure.no_package", ExitCode.MACHINE, name="gradio", extra="[webui]") from None
    if not port_free(host, listening):
        why = text("measure.in_use")
        raise LaunchError("measure.listen", ExitCode.MACHINE, host=host, port=listening, why=why)
    try:
        template = asyncio.run(begin(client, model or found.model, system, longest, warm))
    except ServerError as error:
        raise problem(error, found.url) from None
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening}"

    def ready() -> None:
        print(text("measure.webui_up", url=url, model=template.served.model), file=sys.stderr, flush=True)

    try:
        own = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = False
    if not own:
        print(text("measure.webui_open", host=host), file=sys.stderr, flush=True)
    pages.serve(template, title, host, listening, ready)
