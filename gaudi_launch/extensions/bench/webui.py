"""``gaudi-launch webui``: a chat page in the browser."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import say
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.record_options import RecordCommand
from gaudi_launch.cli.shared_options import SERVER
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.server_address import is_loopback, join, reached
from gaudi_launch.core.services.endpoint import api_key, target
from gaudi_launch.extensions.bench.chat_options import MODEL, Chat, ChatOptions, begin

app = CommandApp()


@app.command(cls=RecordCommand)
def webui(
    server: str | None = SERVER,
    host: str = typer.Option(
        "127.0.0.1", "-u", "--host", metavar="ADDRESS", help="Address to listen on."
    ),
    port: str = typer.Option("7860", "-p", "--port", metavar="PORT", help="Port to listen on."),
    model: str | None = MODEL,
    options: ChatOptions = Chat,
    title: str = typer.Option("gaudi-launch", "--title", metavar="TEXT", help="The page's title."),
) -> None:
    """Serve a chat page for a server, without other network access. Needs the extra 'webui'
    (Gradio).

    The server's key (VLLM_API_KEY) stays on this machine: anyone who can reach the page can use the
    model.
    """
    from gaudi_launch.core.planning.parse import port as read_port
    from gaudi_launch.core.services.addresses import port_free
    from gaudi_launch.extensions.kubernetes.pods import chat_page

    listening = read_port("-p", port)
    found = target(server)
    try:
        why = "" if port_free(host, listening) else text("measure.in_use")
    except (OSError, UnicodeError) as error:
        # an address that is not this machine's, or not an address at all
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise LaunchError("measure.listen", ExitCode.MACHINE, host=host, port=listening, why=why)
    opened = begin(found, options, model)
    chat = chat_page.Chat(
        opened.client.url,
        style=opened.form,
        title=title,
        model=opened.served.model,
        system=options.system,
        tokens=options.tokens,
        temperature=options.temperature,
        seconds=options.timeout,
        key=api_key() or "",
        hosts=(host,),
        thought=text("measure.webui_thought"),
        failed=text("measure.webui_error"),
    )

    def ready() -> None:
        if not is_loopback(host):
            say(text("measure.webui_open", host=host))
        url = f"http://{join(reached(host), listening)}"
        say(text("measure.webui_up", url=url, model=chat.model))

    try:
        with until_ctrl_c():
            chat_page.serve(chat, host, listening, ready)
    except ImportError:
        raise LaunchError(
            "measure.no_package", ExitCode.MACHINE, name="gradio", extra="[webui]"
        ) from None
