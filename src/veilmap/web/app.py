"""The application: routes, the page's files, and refusals in one line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from veilmap import __version__
from veilmap.errors import VeilmapError
from veilmap.web import schema
from veilmap.web.auth import Guard
from veilmap.web.files import page_file
from veilmap.web.library import NoSuchRunError
from veilmap.web.routes import REFUSALS, doing, looking
from veilmap.web.service import Service

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Refusal, "description": text} for status, text in REFUSALS.items()
}


class _Application(FastAPI):
    """FastAPI that describes an answer in a format of its own by its class alone."""

    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        described = super().openapi()
        for operations in described["paths"].values():
            for operation in operations.values():
                for response in operation["responses"].values():
                    for content in response.get("content", {}).values():
                        if "$ref" in content.get("schema", {}):
                            content["schema"].pop("type", None)  # FastAPI takes it for a text
        return described


def create_app(service: Service, token: str | None = None) -> FastAPI:
    """The application over a service of runs; with a token only who has it is answered."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.jobs.close()

    elsewhere: dict[str, Any] = {"docs_url": None, "redoc_url": None}  # would load foreign scripts
    api = "/api/openapi.json"
    app = _Application(
        title="veilmap", version=__version__, openapi_url=api, lifespan=lifespan, **elsewhere
    )
    app.state.service = service
    for router in (looking, doing):
        app.include_router(router, prefix="/api", responses=_REFUSALS)
    _serve_page(app)
    _refuse_in_one_line(app)
    app.add_middleware(Guard, token=token)
    return app


def _serve_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return page_file("index.html")

    @app.get("/page/{name:path}", include_in_schema=False)
    def file(name: str) -> Response:
        return page_file(name)


def _refuse_in_one_line(app: FastAPI) -> None:
    @app.exception_handler(VeilmapError)
    def _mistake(request: Request, error: VeilmapError) -> JSONResponse:
        return _refusal(404 if isinstance(error, NoSuchRunError) else 400, str(error))

    @app.exception_handler(RequestValidationError)
    def _out_of_bounds(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return _refusal(422, f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}")

    @app.exception_handler(HTTPException)
    def _elsewhere(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


def _refusal(status: int, line: str) -> JSONResponse:
    # Lines repeat what was asked for, which may be anything.
    return JSONResponse({"error": " ".join(line.splitlines())}, status)
