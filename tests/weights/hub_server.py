"""A small Hugging Face hub on this computer: what huggingface_hub asks for to look up, download and upload a model.

    GET  /api/models/ORG/NAME[/revision/REVISION]     what a repository holds
    GET  /api/models/ORG/NAME/tree/REVISION           its files with their sizes
    GET, HEAD /ORG/NAME/resolve/REVISION/FILE         a file
    POST /api/repos/create, /api/validate-yaml        before an upload
    POST /api/models/ORG/NAME/branch/BRANCH, …/preupload/BRANCH, …/commit/BRANCH
    POST /ORG/NAME.git/info/lfs/objects/batch         where large files go
    PUT  /lfs/OID                                     a large file

Clients that may not see something get the true hub's answers: 401 for an unknown repository without a token, 404 with one.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

Files = dict[str, bytes]
WRITER, READER = "hf_writer", "hf_reader"
"""Tokens: of who may do anything, and of who may only look."""


@dataclass
class Repository:
    """Files by commit, and the commit of every branch."""

    private: bool = False
    gated: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Files] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, files: Files, branch: str = "main", message: str = "") -> str:
        """A commit of a branch that holds exactly these files; its hash."""
        content = json.dumps([len(self.messages), sorted((name, git_hash(data)) for name, data in files.items())])
        sha = hashlib.sha1(content.encode()).hexdigest()
        self.branches[branch], self.commits[sha] = sha, dict(files)
        self.messages.append(message)
        return sha

    def files(self, revision: str) -> Files | None:
        """The files of a branch or a commit, or None."""
        return self.commits.get(self.branches.get(revision, revision))


def git_hash(content: bytes) -> str:
    """What git calls a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Refusal(Exception):  # noqa: N818
    """An answer that is no success."""

    def __init__(self, status: int, code: str = "", message: str = "", **more: str):
        self.status, self.headers = status, {"X-Error-Code": code, "X-Error-Message": message}
        self.content = {"error": message, **more}


class Hub(ThreadingHTTPServer):
    """The server; ``with Hub() as hub`` starts and stops it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.large: Files = {}
        """Large files by their SHA-256."""
        self.log: list[str] = []
        """Every request: method and path."""
        self.broken = False
        """Whether every answer is 503."""

    def __enter__(self) -> "Hub":
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """From now on connections are refused."""
        self.shutdown()
        self.server_close()

    def add(self, name: str, files: Files, **attributes: Any) -> Repository:
        """A repository with files on its main branch."""
        self.repositories[name] = Repository(**attributes)
        self.repositories[name].commit(files)
        return self.repositories[name]

    @property
    def asked_for(self) -> set[str]:
        """Names of the files whose content or existence anybody asked for."""
        return {line.partition("/resolve/")[2].partition("/")[2] for line in self.log if "/resolve/" in line}


class Answer(BaseHTTPRequestHandler):
    """The answer to one request."""

    server: Hub
    routes = (
        ("GET", r"/api/models/(?P<name>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?", "info"),
        ("GET", r"/api/models/(?P<name>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)", "tree"),
        ("GET", r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)", "resolve"),
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "validate"),
        ("POST", r"/api/models/(?P<name>[^/]+/[^/]+)/branch/(?P<revision>[^/]+)", "branch"),
        ("POST", r"/api/models/(?P<name>[^/]+/[^/]+)/preupload/(?P<revision>[^/]+)", "preupload"),
        ("POST", r"/api/models/(?P<name>[^/]+/[^/]+)/commit/(?P<revision>[^/]+)", "commit"),
        ("POST", r"/(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
        ("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})", "put"),
    )

    def answer(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.server.log.append(f"{self.command} {path}")
        self.content = self._body()
        self.token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            if self.server.broken:
                raise Refusal(503)
            if self.token not in ("", READER, WRITER):
                raise Refusal(401, message="Invalid credentials in Authorization header")
            for method, pattern, name in self.routes:
                match = re.fullmatch(pattern, path)
                if match and method == ("GET" if self.command == "HEAD" else self.command):
                    return self._send(200, *getattr(self, name)(**match.groupdict()))
            raise Refusal(404)
        except Refusal as refusal:
            self._send(refusal.status, refusal.content, refusal.headers)

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

    def log_message(self, *words: object) -> None:
        """Nothing on stderr."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    # -- who may do what

    def _repository(self, name: str) -> Repository:
        found = self.server.repositories.get(name)
        if found is None or (found.private and not self.token):
            raise Refusal(404 if self.token else 401, "RepoNotFound", "Repository not found")
        return found

    def _writable(self, name: str) -> Repository:
        self._require_writer()
        return self._repository(name)

    def _require_writer(self) -> None:
        if self.token != WRITER:
            raise Refusal(403 if self.token else 401, message="You don't have the rights")

    def _files(self, name: str, revision: str) -> tuple[str, Files]:
        repository = self._repository(name)
        files = repository.files(revision)
        if files is None:
            raise Refusal(404, "RevisionNotFound", "Invalid rev id")
        return repository.branches.get(revision, revision), files

    # -- what is read

    def info(self, name: str, revision: str | None) -> tuple[Any]:
        sha, files = self._files(name, revision or "main")
        private = self._repository(name).private
        return ({"id": name, "modelId": name, "sha": sha, "private": private, "siblings": [{"rfilename": f} for f in files]},)

    def tree(self, name: str, revision: str) -> tuple[Any]:
        _, files = self._files(name, revision)
        return ([{"type": "file", "path": f, "size": len(data), "oid": git_hash(data)} for f, data in files.items()],)

    def resolve(self, name: str, revision: str, file: str) -> tuple[bytes, dict[str, str]]:
        sha, files = self._files(name, revision)
        if self._repository(name).gated and self.token != WRITER:
            raise Refusal(403 if self.token else 401, "GatedRepo", "Access to this model is restricted")
        if file not in files:
            raise Refusal(404, "EntryNotFound", "Entry not found")
        return files[file], {"ETag": f'"{git_hash(files[file])}"', "X-Repo-Commit": sha}

    # -- what is written

    def create(self) -> tuple[Any]:
        self._require_writer()
        asked = json.loads(self.content)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.server.repositories:
            raise Refusal(409, message="You already created this model repo", url=f"{self.server.url}/{name}")
        private = asked.get("visibility") == "private" or asked.get("private", False)
        self.server.add(name, {".gitattributes": b""}, private=private)
        return ({"url": f"{self.server.url}/{name}"},)

    def validate(self) -> tuple[Any]:
        assert json.loads(self.content)["repoType"] == "model"
        return ({"errors": [], "warnings": []},)

    def branch(self, name: str, revision: str) -> tuple[Any]:
        repository = self._writable(name)
        if revision in repository.branches:
            raise Refusal(409, message="Reference already exists")
        repository.branches[revision] = repository.branches["main"]
        return ({},)

    def preupload(self, name: str, revision: str) -> tuple[Any]:
        """The true hub takes everything that is large or binary as a large file."""
        self._writable(name)
        known = self._files(name, revision)[1]
        return (
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                        "shouldIgnore": False,
                        "oid": git_hash(known[file["path"]]) if file["path"] in known else None,
                    }
                    for file in json.loads(self.content)["files"]
                ]
            },
        )

    def batch(self, name: str) -> tuple[Any]:
        self._writable(name)
        objects = json.loads(self.content)["objects"]
        actions = [{**o, "actions": {"upload": {"href": f"{self.server.url}/lfs/{o['oid']}"}}} for o in objects]
        return {"transfer": "basic", "objects": actions}, {"Content-Type": "application/vnd.git-lfs+json"}

    def put(self, oid: str) -> tuple[Any]:
        """The address is a secret of its own: no token is sent here."""
        if hashlib.sha256(self.content).hexdigest() != oid:
            raise Refusal(400, message="other content than was announced")
        self.server.large[oid] = self.content
        return ({},)

    def commit(self, name: str, revision: str) -> tuple[Any]:
        repository = self._writable(name)
        files = dict(self._files(name, revision)[1])
        message = ""
        for line in self.content.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            else:
                raise Refusal(400, message=f"unknown operation {entry['key']}")
        sha = repository.commit(files, revision, message)
        return ({"success": True, "commitOid": sha, "commitUrl": f"{self.server.url}/{name}/commit/{sha}"},)
