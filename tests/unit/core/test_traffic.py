"""Tables of requests: what is read, and what is wrong with one by its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.core.errors import InputError
from trtconv.core.traffic import COUNT, TIME, read_traffic


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfbatch, time,x:2\r\n# a remark\r\n1,0.5,64\r\n\r\n2, 1e-1 ,128\r\n1,2,64\r\n")
    traffic = read_traffic(path, TIME)
    assert traffic.dims == ("batch", "x:2")
    assert [(row.line, row.number, row.sizes) for row in traffic.rows] == [
        (3, 0.5, {"batch": 1, "x:2": 64}),
        (5, 0.1, {"batch": 2, "x:2": 128}),
        (6, 2.0, {"batch": 1, "x:2": 64}),
    ]
    assert {sizes: row.line for sizes, row in traffic.distinct().items()} == {(1, 64): 3, (2, 128): 5}


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", TIME, "is empty"),
        ("# nothing\n", TIME, "is empty"),
        ("time,h\n", TIME, "has no requests"),
        ("0.5,64\n1,64\n", TIME, r"t\.csv:1 has no column 'time'; it has '0.5', '64'"),
        ("time,h,h\n1,2,3\n", TIME, r"t\.csv:1 has the column 'h' twice"),
        ("time,h,\n1,2,3\n", TIME, r"t\.csv:1 has a column without a name"),
        ("time,h\n1,2\n1,2,3\n", TIME, r"t\.csv:3 has 3 cells, and the first line 2"),
        ("time,h\n1,2\nsoon,3\n", TIME, r"t\.csv:3: time 'soon'"),
        ("time,h\n-1,2\n", TIME, r"t\.csv:2: time '-1'"),
        ("time,h\nnan,2\n", TIME, r"t\.csv:2: time 'nan'"),
        ("time,h\n1e999,2\n", TIME, r"t\.csv:2: time '1e999'"),
        ("time,h\n1,0\n", TIME, r"t\.csv:2: h '0' is not a size"),
        ("time,h\n1,6.5\n", TIME, r"t\.csv:2: h '6.5' is not a size"),
        ("time,h\n1,\n", TIME, r"t\.csv:2: h '' is not a size"),
        ("time,h\n1,²\n", TIME, r"t\.csv:2: h '²' is not a size"),
        (f"time,h\n1,{'9' * 5000}\n", TIME, r"t\.csv:2: h '9+' is not a size"),
        ('time,h\n1,"2\n', TIME, r"t\.csv:2: "),
        ("count,h\n0,2\n", COUNT, r"t\.csv:2: count '0'"),
        ("count,h\ninf,2\n", COUNT, r"t\.csv:2: count 'inf'"),
        ("time,h\n1,2\n", COUNT, "no column 'count'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, column: str, what: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=what) as caught:
        read_traffic(path, column)
    assert caught.value.hint


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"time,h\n\xff\xfe,1\n")
    with pytest.raises(InputError, match="not text in UTF-8"):
        read_traffic(path, TIME)
    with pytest.raises(InputError, match="cannot be read"):
        read_traffic(tmp_path, TIME)


@given(st.binary(max_size=200))
def test_whatever_it_is_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "t.csv"
    path.write_bytes(b"time,h\n" + content)
    try:
        rows = read_traffic(path, TIME).rows
    except InputError:
        return
    assert rows
    assert all(row.number >= 0 and row.sizes["h"] >= 1 for row in rows)
