"""A machine's files: in a folder and in memory, read by the same rules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.host.files import (
    Files,
    FolderFiles,
    Imagined,
    first_line,
    natural_number,
    numbered,
    printable,
    small_number,
    whole_number,
)


def answers(files: Files) -> dict[str, object]:
    return {
        "text": [files.text(path) for path in ("etc/a", "etc/link", "etc", "none", "etc/a/b")],
        "names": [files.names(path) for path in ("", "etc", "etc/a", "none")],
        "link": [files.link(path) for path in ("etc/link", "etc/a", "none")],
        "exists": [files.exists(path) for path in ("etc/a", "etc/link", "etc", "none")],
        "hidden": [files.hidden(path) for path in ("etc", "etc/a", "none")],
    }


def test_a_folder_and_files_in_memory_answer_alike(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/b").touch()
    (tmp_path / "etc/a").write_text("one\n")
    (tmp_path / "etc/link").symlink_to("/nowhere")
    expected = {
        "text": ["one\n", None, None, None, None],
        "names": [("etc",), ("a", "b", "link"), (), ()],
        "link": ["/nowhere", None, None],
        "exists": [True, True, True, False],
        "hidden": [False, False, False],
    }
    assert answers(FolderFiles(tmp_path)) == expected
    assert answers(Imagined({"etc/b": "", "etc/a": "one\n"}, {"etc/link": "/nowhere"})) == expected


def test_a_pipe_a_nul_and_bytes_that_are_no_text_are_read_without_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"a\xff")
    (tmp_path / os.fsdecode(b"odd\xff")).touch()
    files = FolderFiles(tmp_path)
    assert [files.text(path) for path in ("pipe", "a\0b", "bytes")] == [None, None, "a\ufffd"]
    assert files.link("a\0b") is None
    assert files.names("") == ("bytes", "pipe")


def test_a_large_file_is_cut_at_four_mib(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as large:
        large.truncate((4 << 20) + 1)
    assert len(FolderFiles(tmp_path).text("large") or "") == 4 << 20


def test_a_folder_that_may_not_be_searched_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    assert FolderFiles(tmp_path).hidden("")


def test_the_first_line_is_shown_without_what_steers_a_terminal() -> None:
    files = Imagined({"a": "\n  one \x1b[2J \ntwo\n", "blank": " \n"})
    assert [first_line(files, path) for path in ("a", "blank", "none")] == ["one ?[2J", None, None]
    assert printable("a\tb") == "a?b"


@pytest.mark.parametrize(
    ("text", "whole", "natural", "small"),
    [
        (" 7\n", 7, 7, 7),
        ("0", 0, 0, 0),
        ("-7", -7, None, None),
        ("4095", 4095, 4095, 4095),
        ("4096", 4096, 4096, None),
        ("9" * 15, 10**15 - 1, 10**15 - 1, None),
        ("1" * 16, None, None, None),
        ("--7", None, None, None),
        ("٣", None, None, None),
        ("", None, None, None),
        (None, None, None, None),
    ],
)
def test_numbers_are_decimal_and_bounded(
    text: str | None, whole: int | None, natural: int | None, small: int | None
) -> None:
    found = (whole_number(text), natural_number(text), small_number(text))
    assert found == (whole, natural, small)


def test_names_with_a_number_are_in_the_order_of_numbers() -> None:
    names = ("cpu10", "cpu9", "cpu", "cpufreq", "cpu-1", "cpu0", "xcpu3")
    assert numbered(names, "cpu") == [(0, "cpu0"), (9, "cpu9"), (10, "cpu10")]
