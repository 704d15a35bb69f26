"""The Serve application: an OpenAI-compatible server with cards for each replica.

``import_path: gaudi_ray_app:build``; args: ``kind`` (engine, transformers or stack), ``sets`` of
cards, and for an engine its ``argv`` with ``{port}`` where its port goes; for transformers
``model``, ``name`` and ``dtype``. A stack has ``models``: each an engine's args, the name of its
``deployment`` and its ``names`` in requests; a router in front of them reads ``keys_file``.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Collection
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from gaudi_ray_engine import EngineChild
from gaudi_ray_generate import BadRequest, Generation
from gaudi_ray_openai import Shape, events, job_of
from gaudi_ray_router import KEY_HEADERS, PATHS, Asked, Users, model_of, refused
from gaudi_ray_slots import claim, folder, plain_json
from ray import serve
from ray.exceptions import RayError

# connection-level headers belong to one hop only (RFC 9110, 7.6.1); the length is set again
_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "host",
    "content-length",
}
GONE = "The engine of this model does not answer; it is started again. Repeat the request later."
_METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]

# Serve pickles the classes below where they are decorated: what they use must be defined above them
# or elsewhere


def refusal(text: str, status: int) -> Response:
    return Response(refused(text, status), status, media_type="application/json")


def entry(name: str) -> dict[str, str]:
    """Return a model of the list of models."""
    return {"id": name, "object": "model", "owned_by": "gaudi-launch"}


async def asked_of(request: Request, path: str, hidden: Collection[str] = ()) -> Asked:
    """Return a request as it is passed on, without the headers of its connection."""
    left_out = {*_HOP, *hidden}
    headers = {k: v for k, v in request.headers.items() if k.lower() not in left_out}
    query = f"?{request.url.query}" if request.url.query else ""
    return Asked(request.method, f"{path}{query}", headers, await request.body())


async def streamed(answer: Any) -> Response:
    """Return an answer whose pieces come as they are made."""
    pieces = aiter(answer)
    status, headers = await anext(pieces)
    return StreamingResponse(pieces, status_code=status, headers=headers)


def own_api() -> FastAPI:
    """Return an application without FastAPI's own pages.

    They need no key, and hide the engine's.
    """
    return FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


engine_api = own_api()
model_api = own_api()
stack_api = own_api()


class EngineBehind:
    """A planned engine as subprocess, to which all requests are passed."""

    def __init__(self, args: dict[str, Any]) -> None:
        self._session: Any = None
        slot = claim(folder(), args["sets"], group=args.get("deployment", ""))
        self._child = EngineChild(args["argv"], slot)
        try:
            self._child.wait_ready()
        except BaseException:
            self._child.end()
            raise
        self._child.watch(self._lost)

    def _lost(self, status: int) -> None:
        """End this replica after its engine ended; Serve starts another one."""
        self._child.slot.say(f"the engine ended with {status}; its replica is replaced")
        self._child.end(0.0)
        os._exit(1)

    async def check_health(self) -> None:
        if not await asyncio.to_thread(self._child.healthy):
            raise RuntimeError("the engine does not answer /health")

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is not None:
            child.end()

    async def ask(self, asked: Asked) -> Any:
        """Send a request to the engine; return its answer, to be read piece by piece.

        Raises aiohttp.ClientError where the engine is gone.
        """
        import aiohttp

        if self._session is None:
            none = aiohttp.ClientTimeout(total=None, connect=10)
            self._session = aiohttp.ClientSession(timeout=none, auto_decompress=False)
        return await self._session.request(
            asked.method, f"{self._child.url}/{asked.path}", headers=asked.headers, data=asked.body
        )

    async def answer(self, asked: Asked) -> AsyncIterator[Any]:
        """Yield the status and the headers of the engine's answer, then its pieces.

        When the caller stops reading, the request ends in the engine.
        """
        import aiohttp

        try:
            found = await self.ask(asked)
        except aiohttp.ClientError:
            yield 502, {"content-type": "application/json"}
            yield refused(GONE, 502)
            return
        yield found.status, {k: v for k, v in found.headers.items() if k.lower() not in _HOP}
        try:
            async for piece in found.content.iter_any():
                yield piece
        except aiohttp.ClientError:
            # the engine ended during an answer: so does the answer, its status was already sent
            return
        finally:
            # Serve cancels this task when the client disconnects (seen with 2.60.0), and the
            # engine notices it here
            found.close()


@serve.deployment(name="Engine")
@serve.ingress(engine_api)
class EngineReplica(EngineBehind):
    """One replica of the only model."""

    @engine_api.api_route("/{path:path}", methods=_METHODS)
    async def forward(self, request: Request, path: str) -> Response:
        """Pass a request on and its answer back, piece by piece."""
        return await streamed(self.answer(await asked_of(request, path)))


@serve.deployment(name="Model")
class StackReplica(EngineBehind):
    """One replica of a model of several; the router calls `answer`."""


@serve.deployment(name="Router")
@serve.ingress(stack_api)
class Router:
    """The address of several models, chosen by a request's field ``model``."""

    def __init__(self, args: dict[str, Any], **handles: Any) -> None:
        self._users = Users(args.get("keys_file"))
        self._handles: dict[str, Any] = {}
        for model in args["models"]:
            handle = handles[model["handle"]].options(stream=True)
            self._handles |= dict.fromkeys(model["names"], handle)

    @stack_api.get("/health")
    async def health(self) -> Response:
        return Response(status_code=200)

    @stack_api.get("/v1/models")
    async def models(self, request: Request) -> Response:
        if not self._users.know(request.headers):
            return refusal("The API key is missing or wrong.", 401)
        data = [entry(name) for name in self._handles]
        return JSONResponse({"object": "list", "data": data})

    @stack_api.get("/v1/models/{name:path}")
    async def model(self, request: Request, name: str) -> Response:
        if not self._users.know(request.headers):
            return refusal("The API key is missing or wrong.", 401)
        if name not in self._handles:
            return refusal(f"The model `{name}` does not exist.", 404)
        return JSONResponse(entry(name))

    @stack_api.api_route("/{path:path}", methods=_METHODS)
    async def forward(self, request: Request, path: str) -> Response:
        """Pass a request to an engine of its model; no engine gets the key."""
        if not self._users.know(request.headers):
            return refusal("The API key is missing or wrong.", 401)
        if request.method != "POST" or f"/{path}" not in PATHS:
            return refusal("This path is not served.", 404)
        asked = await asked_of(request, path, hidden=KEY_HEADERS)
        model = model_of(asked)
        if model is None:
            return refusal("The request names no model.", 400)
        if model not in self._handles:
            return refusal(f"The model `{model}` does not exist.", 404)
        try:
            return await streamed(self._handles[model].answer.remote(asked))
        except RayError:
            # its replica ended before the first piece
            return refusal(GONE, 503)


@serve.deployment(name="Generator")
@serve.ingress(model_api)
class Generator:
    """One replica: plain Hugging Face generation behind the same routes."""

    def __init__(self, args: dict[str, Any]) -> None:
        self._name = str(args["name"])
        self._key = os.environ.get("VLLM_API_KEY", "")
        self._model = Generation(args)

    def _refused(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "")
        if not self._key or hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            return None
        return refusal("the API key is missing or wrong", 401)

    @model_api.get("/health")
    async def health(self) -> Response:
        return Response(status_code=200)

    @model_api.get("/v1/models")
    async def models(self, request: Request) -> Response:
        longest = self._model.longest
        model = {
            "id": self._name,
            "object": "model",
            "owned_by": "gaudi-launch",
            "max_model_len": longest,
        }
        return self._refused(request) or JSONResponse({"object": "list", "data": [model]})

    @model_api.post("/v1/completions")
    async def completions(self, request: Request) -> Response:
        return self._refused(request) or await self._answer(request, chat=False)

    @model_api.post("/v1/chat/completions")
    async def chat(self, request: Request) -> Response:
        return self._refused(request) or await self._answer(request, chat=True)

    async def _answer(self, request: Request, chat: bool) -> Response:
        try:
            body = plain_json(await request.body())
            if not isinstance(body, dict):
                raise BadRequest("the request must be a JSON object")
            if body.get("model") not in (None, self._name):
                return refusal(f"The model `{body['model']}` does not exist.", 404)
            job = job_of(body, chat, self._model.tokenizer)
        except (BadRequest, ValueError) as error:
            return refusal(f"the request cannot be read: {error}", 400)
        self._model.add(job)
        shape = Shape(chat, self._name)
        if body.get("stream"):
            options = body.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            return StreamingResponse(events(job, shape, usage), media_type="text/event-stream")
        try:
            text = "".join([piece async for piece in job.text()])
        except BadRequest as error:
            return refusal(str(error), 400)
        except Exception as error:
            return refusal(f"generation failed: {type(error).__name__}", 500)
        return JSONResponse(shape.whole(text, job))


def build(args: dict[str, Any]) -> Any:
    """Return the application of these args (Serve calls this in a worker)."""
    if args.get("kind") == "stack":
        return stack_of(args)
    deployment: Any = Generator if args.get("kind") == "transformers" else EngineReplica
    return deployment.bind(args)


def stack_of(args: dict[str, Any]) -> Any:
    """Return a router with a deployment for each model."""
    bound: dict[str, Any] = {}
    models = []
    for number, model in enumerate(args["models"]):
        handle = f"model{number}"
        deployment: Any = StackReplica
        bound[handle] = deployment.options(name=model["deployment"]).bind(model)
        models.append({"names": model["names"], "handle": handle})
    router: Any = Router
    return router.bind({"models": models, "keys_file": args.get("keys_file")}, **bound)
