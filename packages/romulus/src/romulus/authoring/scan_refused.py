"""What workflow code may not call, and what to write instead; shared by the scan and by the guard at run time."""

from __future__ import annotations

import importlib
import random
import sys
from datetime import date
from types import BuiltinMethodType, MethodType
from typing import Any, Final

from .scan_code import Unloaded

CLOCK: Final = "use romulus.now()"
DRAW: Final = "use romulus.rng()"
UUID: Final = "use romulus.uuid4()"
SLEEP: Final = "use `await asyncio.sleep(…)`, or `romulus.blocking.sleep(…)` in a def workflow: both are durable"
FILES: Final = "put it in a step: files differ from one replay to the next"
NETWORK: Final = "put it in a step: what the network answers must be recorded"
PROCESS: Final = "put it in a step: a replay would start it again"
THREAD: Final = "put it in a `def` step, which runs in a thread and is recorded"
MACHINE: Final = "put it in a step: another worker's machine answers otherwise"
INPUT: Final = "wait for an event with romulus.wait_for_event(…), or put it in a step"

_CALLS: Final = {
    CLOCK: "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time "
    "time.process_time_ns time.clock_gettime time.clock_gettime_ns datetime.datetime.now datetime.datetime.utcnow "
    "datetime.datetime.today datetime.date.today",
    SLEEP: "time.sleep",
    DRAW: "random.SystemRandom os.urandom os.getrandom secrets.token_bytes secrets.token_hex secrets.token_urlsafe secrets.choice "
    "secrets.randbelow secrets.randbits numpy.random.random numpy.random.rand numpy.random.randn numpy.random.randint numpy.random.choice",
    UUID: "uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7",
    FILES: "builtins.open io.open io.FileIO os.open os.listdir os.scandir os.walk os.stat os.mkdir os.makedirs os.remove os.unlink "
    "os.rename os.replace os.rmdir os.path.exists os.path.isfile os.path.isdir os.path.getsize os.path.getmtime shutil.copy "
    "shutil.copyfile shutil.copytree shutil.move shutil.rmtree glob.glob tempfile.mkdtemp tempfile.mkstemp tempfile.NamedTemporaryFile "
    "tempfile.TemporaryFile tempfile.TemporaryDirectory sqlite3.connect apsw.Connection aiofiles.open",
    NETWORK: "socket.socket socket.create_connection socket.create_server socket.getaddrinfo socket.gethostbyname socket.socketpair "
    "urllib.request.urlopen urllib.request.urlretrieve http.client.HTTPConnection http.client.HTTPSConnection smtplib.SMTP ftplib.FTP "
    "asyncio.open_connection asyncio.start_server requests.get requests.post requests.put requests.patch requests.delete requests.head "
    "requests.options requests.request requests.Session requests.session httpx.get httpx.post httpx.put httpx.patch httpx.delete "
    "httpx.head httpx.options httpx.request httpx.stream httpx.Client httpx.AsyncClient aiohttp.ClientSession aiohttp.request "
    "urllib3.PoolManager urllib3.request psycopg.connect psycopg2.connect asyncpg.connect asyncpg.create_pool boto3.client boto3.resource",
    PROCESS: "subprocess.run subprocess.Popen subprocess.call subprocess.check_call subprocess.check_output subprocess.getoutput "
    "subprocess.getstatusoutput os.system os.popen os.fork os.kill os.posix_spawn asyncio.create_subprocess_exec "
    "asyncio.create_subprocess_shell multiprocessing.Process multiprocessing.Pool concurrent.futures.ProcessPoolExecutor asyncio.run",
    THREAD: "threading.Thread threading.Timer _thread.start_new_thread concurrent.futures.ThreadPoolExecutor asyncio.to_thread",
    MACHINE: "os.getpid socket.gethostname socket.getfqdn platform.node",
    INPUT: "builtins.input",
}  # fmt: skip
_BARE: Final = {  # only when called without any argument
    DRAW: "random.Random numpy.random.default_rng",
    CLOCK: "time.localtime time.gmtime time.ctime",
}
_STANDARD: Final = "asyncio datetime os random secrets socket subprocess threading time uuid"  # cheap, and nearly always loaded
Rule = tuple[str, str]  # the call's full name, and the remedy


class Refused:
    """The table, with each name resolved to the object it means in this process."""

    def __init__(self) -> None:
        for module in _STANDARD.split():
            importlib.import_module(module)
        self.names = _flat(_CALLS)
        self.bare_names = _flat(_BARE)
        self._calls = _resolved(self.names)
        self._bare = _resolved(self.bare_names)

    def rule(self, value: Any, *, bare: bool) -> Rule | None:
        """Return why calling *value* is refused, or None; *bare* is a call without arguments."""
        if isinstance(value, Unloaded):
            return _by_name(self.names, value) or (_by_name(self.bare_names, value) if bare else None)
        plain = getattr(value, "__romulus_original__", value) if callable(value) else value
        return _by_owner(plain) or _lookup(self._calls, plain) or (_lookup(self._bare, plain) if bare else None)


def _flat(table: dict[str, str]) -> dict[str, str]:
    return {name: remedy for remedy, names in table.items() for name in names.split()}


def _resolved(names: dict[str, str]) -> dict[Any, Rule]:
    """Return the rules by object, for what is loaded already: what is not cannot be in anybody's globals."""
    found: dict[Any, Rule] = {}
    for name, remedy in names.items():
        value = _object(name)
        if value is not None:
            found.setdefault(getattr(value, "__romulus_original__", value), (name.removeprefix("builtins."), remedy))
    return found


def _object(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    owner = sys.modules.get(module)
    if owner is None:
        outer, _, inner = module.rpartition(".")
        owner = getattr(sys.modules.get(outer), inner, None)
    return getattr(owner, attribute, None)


def _by_name(names: dict[str, str], name: str) -> Rule | None:
    return (str(name), names[name]) if name in names else None


def _by_owner(value: Any) -> Rule | None:
    """Refuse methods of the process's generators and of classes like datetime: each access makes another object of them."""
    if not isinstance(value, BuiltinMethodType | MethodType):
        return None
    owner: object = value.__self__
    if isinstance(owner, random.Random):
        return f"random.{value.__name__}", DRAW
    if isinstance(owner, type) and issubclass(owner, date) and value.__name__ in {"now", "utcnow", "today"}:
        return f"{owner.__name__}.{value.__name__}", CLOCK
    return None


def _lookup(rules: dict[Any, Rule], value: Any) -> Rule | None:
    candidates = value.__mro__ if isinstance(value, type) else (value,)
    for each in candidates:
        try:
            if each in rules:
                return rules[each]
        except TypeError:  # not hashable: nothing of the table
            return None
    return None
