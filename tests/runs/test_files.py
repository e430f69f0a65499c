"""Files are old or new, a changed file is refused, and nothing goes through a link."""

import errno
import json
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from support.fault_injection import FAULTS, Disk, error_at

from mecheval.core.errors import StoreError
from mecheval.runs import files
from mecheval.runs.files import (
    Damaged,
    pack_tensors,
    read,
    read_json,
    remove,
    unpack_tensors,
    write,
    write_json,
)

RECORD = {"step": 7, "curve": [{"loss": 1e-05, "accuracy": 0.25}], "name": "é →", "none": None}
OLD, NEW = b"old" * 1000, b"new" * 2000


def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(tmp_path, monkeypatch):
    synced, disk = [], Disk()
    disk.install(monkeypatch.setattr)
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda d: synced.append(stat.S_ISDIR(os.fstat(d).st_mode)) or real(d)
    )
    write(tmp_path / "a", NEW)
    assert disk.calls == ["unlink", "open", "write", "fsync", "replace", "fsync"]
    assert synced == [False, True]


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("fault", [name for name in FAULTS if not name.startswith("SIGKILL")])
@pytest.mark.parametrize("old", [OLD, None])
def test_a_write_that_fails_leaves_the_old_or_the_new(number, fault, old, tmp_path):
    path = tmp_path / "a"
    if old:
        path.write_bytes(old)
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[fault](number).install(patch.setattr)
        with pytest.raises(
            StoreError, match=r"a cannot be written: (No space left|Input/output error)"
        ):
            write(path, NEW)
    assert (path.read_bytes() if path.exists() else None) == (NEW if number == 6 else old)
    write(path, NEW)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", NEW)]


def test_a_disk_that_fails_in_the_middle_leaves_half_in_the_temporary_file_only(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        Disk(error_at(3, errno.EIO), torn=True).install(patch.setattr)
        with pytest.raises(StoreError):
            write(tmp_path / "a", NEW)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == {
        "a.tmp": len(NEW) // 2
    }


def test_nothing_is_written_through_a_link_that_waits_under_the_temporary_name(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(OLD)
    (tmp_path / "a.tmp").symlink_to(outside)
    write(tmp_path / "a", NEW)
    assert outside.read_bytes() == OLD
    assert (tmp_path / "a").read_bytes() == NEW
    assert not (tmp_path / "a").is_symlink()


def test_a_pipe_under_the_temporary_name_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "a.tmp")
    write(tmp_path / "a", NEW)
    assert (tmp_path / "a").read_bytes() == NEW


def not_a_file(path, kind):
    if kind == "link":
        (path.parent / "target").write_bytes(OLD)
        path.symlink_to(path.parent / "target")
    elif kind == "dangling":
        path.symlink_to(path.parent / "nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as server:
            patch.chdir(path.parent)  # its name may not be long
            server.bind(path.name)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "socket", "nothing"])
def test_only_plain_files_are_read(kind, tmp_path):
    not_a_file(tmp_path / "a.json", kind)
    before = open_files()
    for reader in (read, read_json):
        with pytest.raises(Damaged, match=r"a\.json (cannot be read|is not a regular file)"):
            reader(tmp_path / "a.json")
    assert open_files() == before


def test_a_disk_that_cannot_read_gives_damage(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", RECORD)

    def fail(descriptor, *arguments, **keywords):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "FileIO", fail)
    with pytest.raises(Damaged, match="Input/output error"):
        read_json(tmp_path / "a.json")


def test_json_is_read_as_it_was_written(tmp_path):
    write_json(tmp_path / "a.json", RECORD)
    assert read_json(tmp_path / "a.json") == RECORD


def same_or_refused(path, content):
    path.write_bytes(content)
    try:
        return read_json(path) == RECORD
    except Damaged:
        return True


def test_every_flipped_bit_of_json_is_seen_or_changes_no_meaning(tmp_path):
    write_json(tmp_path / "a.json", RECORD)
    content = (tmp_path / "a.json").read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            assert same_or_refused(tmp_path / "b.json", bytes(flipped)), (place, bit)


def test_every_truncation_of_json_is_seen_or_changes_no_meaning(tmp_path):
    write_json(tmp_path / "a.json", RECORD)
    content = (tmp_path / "a.json").read_bytes()
    assert all(
        same_or_refused(tmp_path / "b.json", content[:length]) for length in range(len(content))
    )
    (tmp_path / "b.json").write_bytes(content[: len(content) // 2])
    with pytest.raises(Damaged, match=r"b\.json is not what was written"):
        read_json(tmp_path / "b.json")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"content"',
        b'{"content": {}}',
        b'{"content": {}, "sha256": null}',
        b'{"content": [], "sha256": "4f53cda18c2baa0c0354bb5f9a3ecbe5'
        b'ed12ab4d8e11ba873c2f11161202b945"}',
        b'{"content": {"a": NaN}, "sha256": ""}',
        b'{"content": {"a": 1e999}, "sha256": ""}',
        b'{"content": {"a": "\\ud800"}, "sha256": ""}',
        b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b', "sha256": ""}',
        b'{"content": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b', "sha256": ""}',
        b'{"content": {"a": ' + b"9" * 10_000 + b'}, "sha256": ""}',
        b"\xff\xfe\x00",
        b"\x80\x04K\x01.",
    ],
    ids=range(16),
)
def test_json_that_we_did_not_write_is_refused(text, tmp_path):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(Damaged, match=r"a\.json"):
        read_json(tmp_path / "a.json")


def test_a_folder_is_removed_with_its_links_but_not_what_they_lead_to(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "file").write_bytes(OLD)
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_bytes(NEW)
    (folder / "inner" / "link").symlink_to(outside)
    (folder / "link").symlink_to(outside / "file")
    remove(folder)
    assert not folder.exists()
    assert (outside / "file").read_bytes() == OLD
    (tmp_path / "link").symlink_to(outside)
    remove(tmp_path / "link")
    remove(tmp_path / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


def test_tensors_are_the_same_bytes_in_any_order_and_come_back_to_the_bit():
    rng = torch.Generator().manual_seed(0)
    tensors = {
        "b": torch.randn(3, 4, generator=rng).T,
        "a": torch.tensor([float("nan"), float("inf"), -0.0]),
        "step": torch.tensor(3.0),
        "none": torch.zeros(0, 2),
        "double": torch.randn(2, dtype=torch.float64, generator=rng),
    }
    content = pack_tensors(tensors)
    assert content == pack_tensors(dict(reversed(tensors.items())))
    for name, tensor in unpack_tensors(content).items():
        assert tensor.dtype == tensors[name].dtype
        np.testing.assert_array_equal(tensor.numpy(), tensors[name].numpy(), strict=True)


def test_what_is_no_safetensors_is_damage_and_never_anything_else():
    content = pack_tensors({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)})
    for length in range(len(content)):
        with pytest.raises(Damaged):
            unpack_tensors(content[:length])
    rng = np.random.default_rng(0)
    for _ in range(2000):
        changed = bytearray(content)
        for place in rng.integers(len(content) - 40, size=rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        try:
            found = unpack_tensors(bytes(changed))
        except Damaged:
            continue
        assert all(isinstance(tensor, torch.Tensor) for tensor in found.values())


def header(**entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def entry(start, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    [
        (2**63).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        (100_000_001).to_bytes(8, "little") + b"{}",
        header(a=entry(0, 8, [2]), b=entry(4, 12, [2])) + bytes(12),
        header(a=entry(0, 800, [200])) + bytes(8),
        header(a=entry(0, 8, [3])) + bytes(8),
        header(a=entry(8, 0, [2])) + bytes(8),
        header(a=entry(-8, 0, [2])) + bytes(8),
        header(a=entry(0, 8, [2**62, 2**62])) + bytes(8),
        header(a=entry(0, 8, [-1, -2])) + bytes(8),
        header(a=entry(0, 8, [2])) + bytes(80),
        header(a=entry(0, 8, [2], "object")) + bytes(8),
        header(a=entry(0, 8, [2**61])) + bytes(8),
        header(a={}) + bytes(8),
        header(__metadata__={"a": 1}),
    ],
    ids=range(15),
)
def test_a_header_that_lies_is_refused(content):
    with pytest.raises(Damaged, match="not a safetensors file"):
        unpack_tensors(content)


@pytest.mark.parametrize(
    "dtype", ["F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "C64", "BOOL", "U64"]
)
def test_a_kind_of_number_is_known_or_damage(dtype):
    with suppress(Damaged):
        assert unpack_tensors(header(a=entry(0, 8, [8], dtype)) + bytes(8))["a"].numel() in (1, 8)
