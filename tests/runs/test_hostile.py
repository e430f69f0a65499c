"""Hostile files: nothing in them is run, and nothing outside the folder is opened or changed.

All are read in one process with an audit hook, which receives every file that is opened, every
class that is unpickled and every program that is started.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from support.fault_injection import Reaper, Stopped, result, small

from mecheval.runs.experiment import Settings
from mecheval.runs.files import pack_tensors, read_json, sha256, unpack_tensors, write_json
from mecheval.runs.run import run

pytestmark = pytest.mark.slow

STEPS, STOPPED = 5, 3
EXPERIMENT = small(train_steps=STEPS, eval_every=2)
NEWEST = f"checkpoints/{STOPPED:010d}"
FILES = (
    "experiment.json",
    "provenance.json",
    "status.json",
    "verdict.json",
    "curve.jsonl",
    "rows.jsonl",
)
FILES += ("weights.safetensors", "optimiser.safetensors", "checksums.json")

GUARD = """
import json, os, sys, traceback
from pathlib import Path

events, armed = [], False
FILES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir")
STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn")
LISTS = ("os.listdir", "os.scandir")

def of_numba():  # which keeps what it compiled beside the source, and reads it by unpickling
    frame = sys._getframe(2)
    while frame and "/numba/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None

def hook(event, arguments):
    if not armed:
        return
    if event == "pickle.find_class" and not of_numba():
        events.append((event, ".".join(arguments)))
    elif event == "subprocess.Popen" and arguments[1][0] in ("git", "uname"):
        return
    elif event in STARTS or event == "subprocess.Popen":
        events.append((event, str(arguments)))
    elif event in FILES and isinstance(arguments[0], (str, bytes, os.PathLike)):
        path = Path(os.fsdecode(arguments[0])).absolute()
        followed = event in LISTS or (event == "open" and not arguments[2] & os.O_NOFOLLOW)
        path = path.resolve() if followed else path.parent.resolve() / path.name
        allowed = path.name.startswith("torchinductor_")
        if not allowed and not any(path.is_relative_to(home) for home in homes):
            events.append((event, str(path)))

def act(action, out):
    if action == "run":
        found = run(EXPERIMENT, out)
        found.summary(), found.load_model()
        return result(found.folder) == wanted
    if action == "table":
        results = Results(out)
        counts = [len(results.rows()), len(results.curves())]
        return [row["status"] for row in results.runs()] + counts
    for folder in out.iterdir():
        found = Run(folder)
        found.verify()
        found.summary(), found.load_model(), found.curve
    return True

def watched(home, call, *arguments):
    global armed
    events.clear()
    homes.insert(0, home)
    armed = True
    try:
        answer = call(*arguments)
    except MechevalError as error:
        answer = {"error": type(error).__name__, "said": str(error), "code": error.exit_code}
    except Exception:
        answer = {"error": "crash", "said": traceback.format_exc(), "code": 1}
    armed = False
    homes.pop(0)
    return {"answer": answer, "events": list(events)}

sys.addaudithook(hook)
sys.path.insert(0, sys.argv[1])
from support.fault_injection import result, small
from mecheval.core.errors import MechevalError
from mecheval.runs.finished import Run
from mecheval.results.table import Results
from mecheval.runs.run import run

EXPERIMENT = small(train_steps=5, eval_every=2)
room, told = Path(sys.argv[2]), {}
package = Path(sys.modules["mecheval"].__file__).parent
system = (*sys.path, sys.prefix, sys.base_prefix, "/proc", "/dev/null", "/sys", "/etc", "/usr")
homes = [package, *(Path(name).resolve() for name in system)]
out = room / "wanted"
told["run"] = watched(out, lambda: run(EXPERIMENT, out).status)
told["sql"] = watched(out, lambda: len(Results(out).sql("from rows")) == len(Results(out).rows()))
wanted = result(out / EXPERIMENT.name)
for out in sorted((room / "cases").iterdir()):
    for action in ("table", "read", "run"):
        told[f"{out.name} {action}"] = watched(out, act, action, out)

def harm():
    sys.audit("pickle.find_class", "posixpath", "join")  # as the unpickler would
    (room / "outside" / "secret").read_bytes()
    list(Path("/").iterdir())
    os.system("true")

told["harm"] = watched(out, harm)
print(json.dumps(told))
"""


def leaves_a_mark(mark, protocol):
    """A pickle, written by hand: read as one, it would call os.system."""
    command = f"touch {mark}".encode()
    if protocol == 0:
        return b"cposix\nsystem\n(V" + command + b"\ntR."
    return b"\x80\x04cposix\nsystem\nX" + len(command).to_bytes(4, "little") + command + b"\x85R."


def forged_run(folder, name, content):
    """A file of a finished run is another, and its checksum agrees."""
    (folder / name).write_bytes(content)
    sums = {
        file: sha256((folder / file).read_bytes()) for file in FILES if file != "checksums.json"
    }
    write_json(folder / "checksums.json", sums)


def forged_checkpoint(folder, content, **numbers):
    """The newest checkpoint is another, and its note agrees."""
    note = read_json(folder / f"{NEWEST}.json")
    (folder / f"{NEWEST}.safetensors").write_bytes(content)
    note = {"numbers": note["numbers"] | numbers, "tensors_sha256": sha256(content)}
    write_json(folder / f"{NEWEST}.json", note)


def changed_tensors(folder, change):
    tensors = unpack_tensors((folder / f"{NEWEST}.safetensors").read_bytes())
    return pack_tensors({name: change(name, tensor) for name, tensor in tensors.items()})


def unsafe(room):
    """Return files that are not safetensors: pickles, and headers that lie."""
    saved = io.BytesIO()
    with zipfile.ZipFile(saved, "w") as archive:  # as torch saves
        archive.writestr("archive/data.pkl", leaves_a_mark(room / "mark", protocol=4))
        archive.writestr("archive/version", "3\n")
    places = {"a": [0, 8], "b": [4, 12]}
    overlapping = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": place}
        for name, place in places.items()
    }
    text = json.dumps(overlapping).encode()
    return {
        "pickle": leaves_a_mark(room / "mark", protocol=4),
        "old pickle": leaves_a_mark(room / "mark", protocol=0),
        "torch": saved.getvalue(),
        "huge header": (2**62).to_bytes(8, "little") + b"{}",
        "overlapping": len(text).to_bytes(8, "little") + text + bytes(12),
        "deep header": (200_000).to_bytes(8, "little") + b"[" * 200_000,
        "empty": b"",
    }


def link(path, outside):
    """The same content, but outside."""
    target = outside / f"{len(list(outside.iterdir()))} {path.name}"
    shutil.move(path, target) if path.is_file() else target.write_bytes(b"")
    path.symlink_to(target)


def pipe(path, outside):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def folder_in_place(path, outside):
    path.unlink(missing_ok=True)
    path.mkdir()


def finished_cases(room):
    """Yield a name, a change to the folder of a finished run, and the file that is blamed."""
    outside = room / "outside"
    for kind, content in unsafe(room).items():
        yield (
            f"weights are {kind}",
            lambda f, c=content: forged_run(f, "weights.safetensors", c),
            "safetensors",
        )
    for name in FILES:
        for how in (link, pipe, folder_in_place):
            yield f"{how.__name__} as {name}", lambda f, n=name, h=how: h(f / n, outside), name
    ways_out = (
        "..",
        "../secret",
        "../../outside/secret",
        "/etc/passwd",
        "",
        ".",
        "a\0b",
        "\ud800",
        "x/../status.json",
    )
    for name in ways_out:
        names = dict.fromkeys([name], "")
        yield (
            f"checksum of {name.encode('unicode_escape').decode().replace('/', '|')}",
            lambda f, n=names: write_json_anyhow(
                f / "checksums.json", read_json(f / "checksums.json") | n
            ),
            "checksums.json" if name == "\ud800" else "does not belong to it",
        )
    deep = b'{"content":' + b'{"a":' * 100_000
    yield "deep status", lambda f: forged_run(f, "status.json", deep), "status.json"
    yield "deep rows", lambda f: forged_run(f, "rows.jsonl", b"[" * 100_000), "rows.jsonl"
    yield (
        "rows that are no numbers",
        lambda f: forged_run(f, "rows.jsonl", b'{"value": NaN}\n'),
        "rows.jsonl",
    )
    yield "deep checksums", lambda f: (f / "checksums.json").write_bytes(deep), "checksums.json"


def write_json_anyhow(path, value):
    """Write the checksum of what is read, even for text that cannot be encoded."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({"content": value, "sha256": sha256(text.encode())}))


def stopped_cases(room):
    """Yield a name, a change to a pending run's folder, and the error, or None if it resumes."""
    outside = room / "outside"
    for kind, content in unsafe(room).items():
        yield f"checkpoint is {kind}", lambda f, c=content: forged_checkpoint(f, c), None
    for name, change in {
        "small": lambda n, t: t[..., :1].clone() if n.startswith("optimiser.exp") else t,
        "large": lambda n, t: torch.zeros(2**16) if n.startswith("optimiser.exp") else t,
        "double": lambda n, t: t.double(),
        "other weights": lambda n, t: torch.zeros(3) if n == "model.embedding.weight" else t,
        "counted": lambda n, t: torch.zeros(2) if n.startswith("optimiser.step") else t,
    }.items():
        yield (
            f"checkpoint is {name}",
            lambda f, c=change: forged_checkpoint(f, changed_tensors(f, c)),
            "its checkpoint is of another experiment",
        )
    yield (
        "strange numbers",
        lambda f: forged_checkpoint(f, changed_tensors(f, lambda n, t: t), clock=[]),
        "is damaged",
    )
    for name in (f"{NEWEST}.json", f"{NEWEST}.safetensors"):
        for how in (link, pipe, folder_in_place):
            yield (
                f"{how.__name__} as {name.replace('/', ' ')}",
                lambda f, n=name, h=how: h(f / n, outside),
                None,
            )
    for name in ("experiment.json", "made_by.json"):
        for how in (link, pipe, folder_in_place):
            yield f"{how.__name__} as {name}", lambda f, n=name, h=how: h(f / n, outside), name
    for name in (
        "status.json.tmp",
        "weights.safetensors.tmp",
        "checkpoints/0000000004.json.tmp",
        "error.json",
        "x",
    ):
        for how in (link, pipe):
            yield (
                f"{how.__name__} as {name.replace('/', ' ')}",
                lambda f, n=name, h=how: h(f / n, outside),
                None,
            )
    for name in ("weights.safetensors", "rows.jsonl", "checksums.json"):
        yield f"link as {name}", lambda f, n=name: link(f / n, outside), None
    yield "link to a folder", lambda f: (f / "x").symlink_to(outside), None
    yield "no checksums", lambda f: write_json(f / "checksums.json", {}), None
    yield (
        "checksum of a way out",
        lambda f: write_json(f / "checksums.json", {"../../outside/secret": ""}),
        None,
    )
    yield (
        "checkpoints elsewhere",
        lambda f: elsewhere(f / "checkpoints", outside),
        "checkpoints is a link",
    )


def elsewhere(folder, outside):
    """Make the folder of checkpoints a link that leads outside."""
    shutil.rmtree(folder)
    folder.symlink_to(outside)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return the answer by case and action; `expected` has the right ones."""
    room = tmp_path_factory.mktemp("room")
    (room / "outside").mkdir()
    (room / "outside" / "secret").write_bytes(b"a secret")
    finished = run(EXPERIMENT, room / "finished").folder
    with pytest.raises(Stopped):
        run(EXPERIMENT, room / "stopped", Settings(save_every=0.0), [Reaper(STOPPED + 1)])
    stopped = room / "stopped" / f"{EXPERIMENT.name}.partial"
    expected = {}
    for source, cases in ((finished, finished_cases), (stopped, stopped_cases)):
        for name, harm, said in cases(room):
            name = f"{'finished' if source == finished else 'on its way'}, {name}"
            harm(shutil.copytree(source, room / "cases" / name / source.name))
            expected[name] = said
    for name, path in {"finished": finished, "on its way": stopped}.items():
        (room / "cases" / f"{name}, elsewhere").mkdir()
        (room / "cases" / f"{name}, elsewhere" / path.name).symlink_to(path)
        expected[f"{name}, elsewhere"] = (
            "is not a complete run" if name == "finished" else "cannot be used"
        )
        shutil.copytree(path.parent, room / "cases" / f"{name}, whole")
        expected[f"{name}, whole"] = None
    nowhere = tmp_path_factory.mktemp("nowhere")
    before = contents(room / "outside"), contents(finished), contents(stopped)
    tests = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    done = subprocess.run(
        [sys.executable, "-c", GUARD, tests, room],
        cwd=nowhere,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    after = contents(room / "outside"), contents(finished), contents(stopped)
    return json.loads(done.stdout) | {
        "expected": expected,
        "unchanged": before == after,
        "marked": (room / "mark").exists(),
        "wanted": result(finished),
    }


@pytest.mark.slow
def test_the_guard_sees_what_it_is_there_for(told):
    assert {event for event, _ in told["harm"]["events"]} == {
        "open",
        "os.listdir",
        "os.system",
        "pickle.find_class",
    }


def test_a_run_and_a_question_about_it_unpickle_nothing_and_stay_at_home(told):
    assert told["run"] == {"answer": "done", "events": []}
    assert told["sql"] == {"answer": True, "events": []}


def test_nothing_was_run(told):
    assert not told["marked"]


def test_nothing_outside_was_changed(told):
    assert told["unchanged"]


@pytest.mark.parametrize("action", ["table", "read", "run"])
def test_nothing_is_unpickled_or_started_and_nothing_outside_is_opened(told, action):
    found = {name: told[f"{name} {action}"]["events"] for name in told["expected"]}
    assert {name: events for name, events in found.items() if events} == {}


@pytest.mark.parametrize("action", ["table", "read", "run"])
def test_nothing_crashes(told, action):
    answers = {name: told[f"{name} {action}"]["answer"] for name in told["expected"]}
    assert [
        answer
        for answer in answers.values()
        if isinstance(answer, dict) and answer["error"] == "crash"
    ] == []


def test_a_run_is_refused_with_the_reason_or_ends_in_the_same_bytes(told):
    wrong = {}
    for name, said in told["expected"].items():
        answer = told[f"{name} run"]["answer"]
        whole = (
            answer is True if said is None else isinstance(answer, dict) and said in answer["said"]
        )
        if not whole or (said and answer["code"] != 3):
            wrong[name] = answer
    assert wrong == {}


def test_a_table_lists_every_run_whatever_is_in_it(told):
    for name in told["expected"]:
        (status, *counts) = told[f"{name} table"]["answer"]
        assert status in ("done", "killed", "damaged", "error"), name
        assert (status == "done") == all(counts), name
