"""Is every element of the dmrpp namespace understood: texts, structures, blocks, places, filters in
their order?
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from damaged_bytes import count_refused, flip, read_all
from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats import InsituWarning, scan_format
from insitu.model import Stored, VirtualGroup
from insitu.sources import MemorySource

DATA = "memory://data.nc"


def _document(inside: str, href: str = DATA, version: str = ' dmrpp:version="3.20.13"') -> bytes:
    return (
        f'<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" '
        f'name="a" dmrpp:href="{href}"{version}>{inside}</Dataset>'
    ).encode()


def _open(inside: str, **attributes: Any) -> VirtualGroup:
    return insitu.scan(MemorySource(_document(inside, **attributes)), decode=False)


def _write_beside(path: Path, inside: str, **attributes: Any) -> Path:
    side = path.with_name(f"{path.name}.dmrpp")
    side.write_bytes(_document(inside, href="OPeNDAP_DMRpp_DATA_ACCESS_URL", **attributes))
    return side


def _beside(path: Path, inside: str, **attributes: Any) -> VirtualGroup:
    return insitu.scan(_write_beside(path, inside, **attributes), decode=False)


def _place(path: Path, name: str, cell: tuple[int, ...]) -> Stored:
    found = insitu.scan(path, decode=False).arrays[name].tiles[0].chunks[cell]
    assert isinstance(found, Stored)
    return found


def _armoured(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_texts_of_varying_length(tmp_path: Path) -> None:
    long = "a long text " * 40
    texts = ["Grüße", "is", "so", "so", "so", "", long, "<&>"]
    packed = f'<v s="{len(long)}">{_armoured(zlib.compress(long.encode()))}</v>'
    values = f'<v>Grüße</v><v>is</v><v c="3">so</v><v/>{packed}<v>&lt;&amp;&gt;</v>'
    group = _open(f'<String name="t"><Dim size="4"/><Dim size="2"/><dmrpp:vlsa>{values}</dmrpp:vlsa></String>')
    assert insitu.read(group, "t", decode=False).ravel().tolist() == texts
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=np.array(texts, object).reshape(4, 2), dtype=h5py.string_dtype())
    own = insitu.scan(tmp_path / "a.h5", decode=False)
    assert own.arrays["t"].dtype == group.arrays["t"].dtype
    np.testing.assert_array_equal(insitu.read(own, "t", decode=False), insitu.read(group, "t", decode=False))


@pytest.mark.parametrize(
    "values",
    [
        "<v>a</v>", '<v c="3">a</v>', '<v c="99999999999999">a</v>', '<v c="-1">a</v>', '<v c="x">a</v>',
        '<v s="4">!</v><v/>',
        f'<v s="4">{_armoured(b"no deflate")}</v><v/>', f'<v s="9">{_armoured(zlib.compress(b"abc"))}</v><v/>',
        f'<v s="2">{_armoured(zlib.compress(b"abc"))}</v><v/>', '<v s="99999999999">YQ==</v><v/>',
        f'<v c="{"9" * 5000}">a</v>',
    ],
)  # fmt: skip
def test_texts_that_make_no_sense(values: str) -> None:
    with pytest.raises(FormatError):
        _open(f'<String name="t"><Dim size="2"/><dmrpp:vlsa>{values}</dmrpp:vlsa></String>')


RECORD = np.dtype([("i", "<i4"), ("f", "<f8"), ("m", "<i2", (2, 3))], align=True)
MEMBERS = '<Int32 name="i"/><Float64 name="f"/><Int16 name="m"><Dim size="2"/><Dim size="3"/></Int16>'


def _records(count: int) -> np.ndarray[Any, Any]:
    values = np.zeros(count, RECORD)
    values["i"], values["f"] = np.arange(count), np.arange(count) / 4
    values["m"] = np.arange(6 * count).reshape(count, 2, 3)
    return values


def test_structures_in_chunks(tmp_path: Path) -> None:
    values = _records(20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("r", data=values, chunks=(8,), compression="gzip", shuffle=True)
    rows = "".join(
        f'<dmrpp:chunk offset="{place.offset}" nBytes="{place.length}" chunkPositionInArray="[{8 * n}]"/>'
        for n, place in ((n, _place(tmp_path / "a.h5", "r", (n,))) for n in range(3))
    )
    offsets = " ".join(str(RECORD.fields[name][1]) for name in ("f", "m"))  # type: ignore[index]
    attributes = f'compressionType="shuffle deflate" byteOrder="LE" structOffset="{offsets} {RECORD.itemsize}"'
    inside = (
        f'<Structure name="r">{MEMBERS}<Dim size="20"/><dmrpp:chunks {attributes}>'
        f"<dmrpp:chunkDimensionSizes>8</dmrpp:chunkDimensionSizes>{rows}</dmrpp:chunks></Structure>"
    )
    group = _beside(tmp_path / "a.h5", inside)
    np.testing.assert_array_equal(insitu.read(group, "r", decode=False), values)
    assert group.arrays["r"].dtype == insitu.scan(tmp_path / "a.h5", decode=False).arrays["r"].dtype
    for wrong in ("8 16", "8 16 x", f"8 16 {RECORD.itemsize - 5}", "8 16 99999999999"):
        with pytest.raises(FormatError, match="structure of 3"):
            _beside(tmp_path / "a.h5", inside.replace(f"{offsets} {RECORD.itemsize}", wrong))


def test_structures_never_written() -> None:
    inside = (
        f'<Structure name="r">{MEMBERS}<Dim size="2"/>'
        '<dmrpp:chunks fillValue="7 -1.5 1 2 3 4 5 6" byteOrder="BE"/></Structure>'
    )
    found = insitu.read(_open(inside), "r", decode=False)
    assert found["i"].tolist() == [7, 7]
    assert found["f"].tolist() == [-1.5, -1.5]
    assert found["m"].tolist() == [[[1, 2, 3], [4, 5, 6]]] * 2
    one = insitu.read(_open(inside.replace("7 -1.5 1 2 3 4 5 6", "-3")), "r", decode=False)
    assert (one["i"][0], one["f"][0], one["m"].tolist()) == (-3, -3.0, [[[-3] * 3] * 2] * 2)
    for wrong in ("7 8", "7 -1.5 3", "7 -1.5 1 2 3 4 5 6 7", ""):
        with pytest.raises(FormatError, match="fill values for 3 members of 8"):
            _open(inside.replace("7 -1.5 1 2 3 4 5 6", wrong))


def test_fill_values_of_structures_as_h5py_has_them(tmp_path: Path) -> None:
    """The builder writes each element of each member, in order."""
    record = np.dtype([("a", "<i4"), ("b", "<f4", (3,)), ("c", "<i2", (2,))])
    fill = np.array((1, [1.5, 2.5, -3.5], [7, -8]), record)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("r", (4,), record, chunks=(2,), fillvalue=fill)
        made[2:] = np.zeros(2, record)
        expected = made[...]
    place = _place(tmp_path / "a.h5", "r", (1,))
    members = '<Int32 name="a"/><Float32 name="b"><Dim size="3"/></Float32><Int16 name="c"><Dim size="2"/></Int16>'
    group = _beside(
        tmp_path / "a.h5",
        f'<Structure name="r">{members}<Dim size="4"/><dmrpp:chunks fillValue="1 1.5 2.5 -3.5 7 -8" byteOrder="LE">'
        f'<dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes><dmrpp:chunk offset="{place.offset}" '
        f'nBytes="{place.length}" chunkPositionInArray="[2]"/></dmrpp:chunks></Structure>',
    )
    for _ in range(2):
        np.testing.assert_array_equal(insitu.read(group, "r", decode=False), expected)


def test_structures_with_texts() -> None:
    members = (
        '<Int32 name="n"/><String name="t"/><String name="many"><Dim size="2"/></String><Float32 '
        'name="f"><Dim size="2"/></Float32>'
    )
    data, expected = b"", []
    for number, (text, first, second) in enumerate([("abc", "x", ""), ("", "yy", "zzz")]):
        data += np.int32(number).tobytes()
        data += b"".join(base64.b64encode(t.encode()) + b";" for t in (text, first, second))
        data += np.array([number, 0.5], "<f4").tobytes()
        expected.append((number, text.encode(), [first.encode(), second.encode()], [number, 0.5]))
    element = f"<dmrpp:specialstructuredata>{_armoured(data)}</dmrpp:specialstructuredata>"
    inside = f'<Structure name="r">{members}<Dim size="2"/>{element}</Structure>'
    found = insitu.read(_open(inside), "r", decode=False)
    assert [(n, t, many.tolist(), f.tolist()) for n, t, many, f in found] == expected
    for wrong in (data[:-1], data + b"x", data.replace(b";", b""), b""):
        with pytest.raises(FormatError):
            _open(inside.replace(_armoured(data), _armoured(wrong)))
    with pytest.raises(FormatError):
        _open(inside.replace('<Dim size="2"/><dmrpp', '<Dim size="999999999999"/><dmrpp'))


def test_structures_of_others_are_refused_by_name() -> None:
    chunks = '<Dim size="2"/><dmrpp:chunks/>'
    with pytest.raises(UnsupportedError, match="'t' of a structure is a text"):
        _open(f'<Structure name="r"><String name="t"/>{chunks}</Structure>')
    with pytest.raises(UnsupportedError, match="member of type Structure"):
        _open(f'<Structure name="r"><Structure name="t"/>{chunks}</Structure>')
    with pytest.raises(UnsupportedError, match="unsupported-vlstr"):
        _open('<Int8 name="v"><Dim size="2"/><dmrpp:chunks fillValue="unsupported-vlstr"/></Int8>')


def test_a_chunk_without_a_list_around_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.arange(12, dtype="<i4").reshape(3, 4)
    place = _place(tmp_path / "a.h5", "v", (0, 0))
    chunk = f'<dmrpp:chunk offset="{place.offset}" nBytes="{place.length}"/>'
    group = _beside(tmp_path / "a.h5", f'<Int32 name="v"><Dim size="3"/><Dim size="4"/>{chunk}</Int32>')
    np.testing.assert_array_equal(insitu.read(group, "v", decode=False), np.arange(12).reshape(3, 4))
    with pytest.raises(FormatError):
        _open('<Int32 name="v"><dmrpp:chunk offset="-4" nBytes="4"/></Int32>')


def test_positions_as_the_schema_has_them() -> None:
    for form in ("[{},{}]", "{} {}", "[{}, {}]"):
        rows = "".join(
            f'<dmrpp:chunk offset="{n}" nBytes="4" chunkPositionInArray="{form.format(2 * (n // 2), 2 * (n % 2))}"/>'
            for n in range(4)
        )
        sizes = "<dmrpp:chunkDimensionSizes>2 2</dmrpp:chunkDimensionSizes>"
        group = _open(f'<Int8 name="v"><Dim size="4"/><Dim size="4"/><dmrpp:chunks>{sizes}{rows}</dmrpp:chunks></Int8>')
        chunks = group.arrays["v"].tiles[0].chunks
        found = [chunks[n // 2, n % 2] for n in range(4)]
        assert [cell.offset for cell in found if isinstance(cell, Stored)] == [0, 1, 2, 3]


def test_filters_in_the_order_of_the_document(tmp_path: Path) -> None:
    """Documents without a version name them in any order; with one, in that in which they were
    applied.
    """
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset(
            "v", data=np.arange(50.0), chunks=(50,), compression=3, shuffle=True, fletcher32=True
        )
        assert made.shuffle
    place = _place(tmp_path / "a.h5", "v", (0,))

    def inside(filters: str) -> str:
        return (
            f'<Float64 name="v"><Dim size="50"/><dmrpp:chunks compressionType="{filters}" deflateLevel="3">'
            f'<dmrpp:chunkDimensionSizes>50</dmrpp:chunkDimensionSizes><dmrpp:chunk offset="{place.offset}" '
            f'nBytes="{place.length}" chunkPositionInArray="[0]"/></dmrpp:chunks></Float64>'
        )

    order = " ".join(
        {"zlib": "deflate"}.get(codec.name, codec.name)
        for codec in insitu.scan(tmp_path / "a.h5", decode=False).arrays["v"].tiles[0].encodings[0].codecs
    )
    group = _beside(tmp_path / "a.h5", inside(order))
    np.testing.assert_array_equal(insitu.read(group, "v", decode=False), np.arange(50.0))
    named = _beside(tmp_path / "a.h5", inside("deflate shuffle"))
    assert [codec.name for codec in named.arrays["v"].tiles[0].encodings[0].codecs] == ["zlib", "shuffle"]
    old = _beside(tmp_path / "a.h5", inside("fletcher32 deflate shuffle"), version="")
    assert [codec.name for codec in old.arrays["v"].tiles[0].encodings[0].codecs] == ["shuffle", "zlib", "fletcher32"]
    with pytest.raises(UnsupportedError, match="'szip'"):
        _open(inside("szip"))


def test_two_deflates(tmp_path: Path) -> None:
    values = np.arange(100, dtype="<i4")
    data = zlib.compress(zlib.compress(values.tobytes(), 2), 9)
    (tmp_path / "a.bin").write_bytes(b"junk" + data)
    inside = (
        '<Int32 name="v"><Dim size="100"/>'
        '<dmrpp:chunks compressionType="deflate deflate" deflateLevel="2 9" byteOrder="LE">'
        f'<dmrpp:chunkDimensionSizes>100</dmrpp:chunkDimensionSizes><dmrpp:chunk offset="4" nBytes="{len(data)}" '
        'chunkPositionInArray="[0]"/></dmrpp:chunks></Int32>'
    )
    group = _beside(tmp_path / "a.bin", inside)
    np.testing.assert_array_equal(insitu.read(group, "v", decode=False), values)
    assert [codec.configuration["level"] for codec in group.arrays["v"].tiles[0].encodings[0].codecs] == [2, 9]


def test_linked_blocks(tmp_path: Path) -> None:
    """HDF4 data in pieces: a cell for each that holds whole rows."""
    values = np.arange(40, dtype=">i2").reshape(10, 4)
    raw = values.tobytes()
    (tmp_path / "a.hdf").write_bytes(raw[48:] + b"gap" + raw[:48])
    blocks = (
        f'<dmrpp:block offset="{len(raw) - 48 + 3}" nBytes="48"/><dmrpp:block offset="0" nBytes="{len(raw) - 48}"/>'
    )
    inside = (
        f'<Int16 name="v"><Dim size="10"/><Dim size="4"/><dmrpp:chunks byteOrder="BE">{blocks}</dmrpp:chunks></Int16>'
    )
    np.testing.assert_array_equal(insitu.read(_beside(tmp_path / "a.hdf", inside), "v", decode=False), values)
    with pytest.raises(UnsupportedError, match="do not hold whole rows"):
        _beside(tmp_path / "a.hdf", inside.replace('nBytes="48"', 'nBytes="46"'))


def test_chunks_in_linked_blocks(tmp_path: Path) -> None:
    """Pieces that lie together are one chunk; those that lie apart are refused."""
    values = np.arange(200, dtype="<i4")
    data = zlib.compress(values.tobytes())
    (tmp_path / "a.hdf").write_bytes(data)

    def inside(second: int) -> str:
        rows = "".join(
            f'<dmrpp:chunk offset="{offset}" nBytes="{length}" chunkPositionInArray="[0]" LinkedBlockIndex="{number}"/>'
            for number, (offset, length) in enumerate([(0, 50), (second, len(data) - 50)])
        )
        sizes = "<dmrpp:chunkDimensionSizes>200</dmrpp:chunkDimensionSizes>"
        attributes = 'compressionType="deflate" LBChunk="true" byteOrder="LE"'
        return f'<Int32 name="v"><Dim size="200"/><dmrpp:chunks {attributes}>{sizes}{rows}</dmrpp:chunks></Int32>'

    np.testing.assert_array_equal(insitu.read(_beside(tmp_path / "a.hdf", inside(50)), "v", decode=False), values)
    with pytest.raises(UnsupportedError, match="lie apart"):
        _beside(tmp_path / "a.hdf", inside(60))


def _hrefs(*hrefs: str) -> str:
    rows = "".join(
        f'<dmrpp:chunk offset="0" nBytes="2" chunkPositionInArray="[{2 * n}]" href="{href}"/>'
        for n, href in enumerate(hrefs)
    )
    sizes = "<dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>"
    return f'<Int8 name="v"><Dim size="{2 * len(hrefs)}"/><dmrpp:chunks>{sizes}{rows}</dmrpp:chunks></Int8>'


def test_chunks_name_files_beside_the_document(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for number, name in enumerate(("a.nc", "b.nc", "sub/c.nc")):
        (tmp_path / name).write_bytes(bytes([number, number + 10]))
    hrefs = ("data/dmrpp/a.nc", "b.nc", "sub/c.nc", "OPeNDAP_DMRpp_DATA_ACCESS_URL")
    group = _beside(tmp_path / "a.nc", _hrefs(*hrefs))
    assert insitu.read(group, "v", decode=False).tolist() == [0, 10, 1, 11, 2, 12, 0, 10]


@pytest.mark.parametrize("href", ["/etc/passwd", "../b.nc", "sub/../../b.nc", "file:///etc/passwd", "..\\b.nc"])
def test_chunks_name_no_other_files_of_this_machine(tmp_path: Path, href: str) -> None:
    (tmp_path / "a.nc").write_bytes(bytes(2))
    with pytest.raises(UnsupportedError, match="in another folder"):
        _beside(tmp_path / "a.nc", _hrefs(href))


def test_a_document_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "a.nc").write_bytes(bytes([3, 4]))
    inside = '<Int8 name="v"><Dim size="2"/><dmrpp:chunk offset="0" nBytes="2"/></Int8>'
    (tmp_path / "b.xml").write_bytes(_document(inside, href="a.nc"))
    assert insitu.read(tmp_path / "b.xml", "v", decode=False).tolist() == [3, 4]
    (tmp_path / "b.xml").write_bytes(_document(inside, href="../a.nc"))
    with pytest.raises(InsituError):
        insitu.scan(tmp_path / "b.xml", decode=False)


def test_the_namespace_of_the_schema() -> None:
    document = _document('<Int8 name="v"><dmrpp:compact>BQ==</dmrpp:compact></Int8>').replace(
        b"http://xml.opendap.org/dap/dmrpp/1.0.0#", b"http://opendap.org/ns/dmrpp/1.0#"
    )
    assert insitu.read(insitu.scan(MemorySource(document), decode=False), "v", decode=False) == 5


def test_enumerations_attributes_and_dimensions() -> None:
    inside = (
        '<Enumeration name="colour" basetype="UInt8"><EnumConst name="red" value="0"/></Enumeration>'
        '<Group name="g"><Dimension name="x" size="2"/><Enumeration name="inner" basetype="Int16"/>'
        '<Enum name="c" enum="/colour"><Dim name="/g/x"/><Attribute name="one" type="Int32" value="7"/>'
        '<Attribute name="two" type="Float32"><Value value="1.5"/><Value>*</Value></Attribute>'
        '<Attribute name="box" type="Container">'
        '<Attribute name="in" type="String"><Value>t</Value></Attribute></Attribute>'
        '<Map name="/g/x"/><dmrpp:compact>AQI=</dmrpp:compact></Enum>'
        '<Enum name="d" enum="/g/inner"><Dim name="/h/y" size="1"/><dmrpp:compact>AQI=</dmrpp:compact></Enum></Group>'
    )
    group = _open(inside).groups["g"]
    assert insitu.read(group, "c", decode=False).tolist() == [1, 2]
    assert insitu.read(group, "d", decode=False).tolist() == [513]
    assert (group.arrays["c"].dims, group.arrays["d"].dims) == (("x",), ("y",))
    attributes = group.arrays["c"].attributes
    assert (attributes["one"], attributes["box.in"]) == (7, "t")
    assert attributes["two"][0] == 1.5
    assert np.isnan(attributes["two"][1])


def test_attributes_that_hold_no_values_are_named() -> None:
    inside = (
        '<Int8 name="v"><Attribute name="more" type="OtherXML"><x><y/></x></Attribute>'
        '<Attribute name="none" type="String"/>'
        "<dmrpp:compact>BQ==</dmrpp:compact></Int8>"
    )
    with pytest.warns(InsituWarning, match="attribute 'more': it holds <x>"):
        assert _open(inside).arrays["v"].attributes == {"none": ""}


def test_fill_values_of_texts() -> None:
    inside = (
        '<String name="t"><Dim size="2"/><dmrpp:FixedLengthStringArray '
        'string_length="4"/><dmrpp:chunks fillValue="ab"/></String>'
    )
    assert insitu.read(_open(inside), "t", decode=False).tolist() == [b"ab", b"ab"]


PADDINGS = {"null_term": h5py.h5t.STR_NULLTERM, "null_pad": h5py.h5t.STR_NULLPAD, "space_pad": h5py.h5t.STR_SPACEPAD}


@pytest.mark.parametrize("pad", PADDINGS)
def test_texts_padded_as_in_the_file(tmp_path: Path, pad: str) -> None:
    """Also where a mask says that a chunk is not compressed, and where nothing was written."""
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(5)
    kind.set_strpad(PADDINGS[pad])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("t", (8,), kind, chunks=(2,), compression=1, shuffle=False, fillvalue=b"ab  ")
        made[:4] = np.array([b"a b", b" abc", b"", b"x  "])
        made.id.write_direct_chunk((4,), b"p q  r\0st ", filter_mask=1)
    with h5py.File(tmp_path / "a.h5") as file:
        expected = file["t"][...]
    rows = "".join(
        f'<dmrpp:chunk offset="{place.offset}" nBytes="{place.length}" chunkPositionInArray="[{2 * n}]"{mask}/>'
        for n, mask in ((0, ""), (1, ""), (2, ' fm="1"'))
        for place in [_place(tmp_path / "a.h5", "t", (n,))]
    )
    inside = (
        f'<String name="t"><Dim size="8"/><dmrpp:FixedLengthStringArray string_length="5" pad="{pad}"/>'
        f'<dmrpp:chunks compressionType="deflate" fillValue="ab  "><dmrpp:chunkDimensionSizes>2'
        f"</dmrpp:chunkDimensionSizes>{rows}</dmrpp:chunks></String>"
    )
    group = _beside(tmp_path / "a.h5", inside)
    for _ in range(2):
        assert insitu.read(group, "t", decode=False).tolist() == expected.tolist()
    for fill in ("a   ", "a    ", " a  b"):
        never = f"{inside[: inside.index('<dmrpp:chunks')]}<dmrpp:chunks fillValue='{fill}'/></String>"
        shown = fill.rstrip(" ") if pad == "space_pad" and len(fill) == 5 else fill  # the one of four ends with NUL
        assert insitu.read(_open(never), "t", decode=False).tolist() == [shown.encode()] * 8
    compact = f"<dmrpp:compact>{_armoured(b'x    y z  ')}</dmrpp:compact>"
    short = inside[: inside.index("<dmrpp:chunks")].replace('"8"', '"2"')
    ends = b" " if pad == "space_pad" else b""
    found = insitu.read(_open(f"{short}{compact}</String>"), "t", decode=False).tolist()
    assert found == [text.rstrip(ends) if ends else text for text in (b"x    ", b"y z  ")]


def test_texts_that_a_builder_marks_have_no_fill_value() -> None:
    """Builders of 2022 mark texts of one length, too, which they describe."""
    inside = (
        '<String name="t"><Dim size="2"/><dmrpp:FixedLengthStringArray string_length="4"/>'
        '<dmrpp:chunks fillValue="unsupported-string"/></String>'
    )
    assert insitu.read(_open(inside), "t", decode=False).tolist() == [b"", b""]


def _text_file(path: Path) -> dict[str, Any]:
    """Write texts whose length a document does not give, and return what h5py reads."""
    kinds = h5py.string_dtype(), h5py.string_dtype(length=6)
    record = np.dtype([("name", "S3"), ("number", "<i2")])
    with h5py.File(path, "w") as file:
        group = file.create_group("g")
        for number, kind in enumerate(kinds):
            texts = np.array(["Grüße"[: 6 - number], "", "x"], object)
            group.create_dataset(f"whole{number}", (3,), kind)[...] = texts
            group.create_dataset(f"cut{number}", (5,), kind, chunks=(2,), compression="gzip")[:3] = texts
            group.create_dataset(f"single{number}", (), kind)[...] = "one"
        group["records"] = np.array([(b"ab", 1), (b"cde", 2)], record)
        return {
            f"g/{name}": np.asarray((found.asstr() if found.dtype.kind == "O" else found)[...])
            for name, found in group.items()
        }


def test_what_a_document_does_not_describe_is_found_in_the_data_file(tmp_path: Path) -> None:
    """Texts of any length in chunks, and structures with texts: no document gives their lengths."""
    expected = _text_file(tmp_path / "a.h5")
    parts = []
    for path, values in expected.items():
        name = path.partition("/")[2]
        dims = "".join(f'<Dim name="/g/{name}_{n}" size="{size}"/>' for n, size in enumerate(values.shape))
        attributes = f'{dims}<Attribute name="units" type="String"><Value>{name}</Value></Attribute>'
        if values.dtype.names:
            members = '<String name="name"/><Int16 name="number"/>'
            parts.append(f'<Structure name="{name}">{members}{attributes}<dmrpp:chunks fillValue="0"/></Structure>')
        else:
            chunks = '<dmrpp:chunks fillValue="unsupported-string"><dmrpp:chunk offset="9" nBytes="1"/></dmrpp:chunks>'
            parts.append(f'<String name="{name}">{attributes}{chunks}</String>')
    fine = '<Int8 name="fine"><dmrpp:compact>BQ==</dmrpp:compact></Int8>'
    group = _beside(tmp_path / "a.h5", f'{fine}<Group name="g">{"".join(parts)}</Group>')
    for path, values in expected.items():
        name = path.partition("/")[2]
        array = group.array(path)
        assert array.dims == tuple(f"{name}_{n}" for n in range(values.ndim))
        assert array.attributes == {"units": name}
        for _ in range(2):
            np.testing.assert_array_equal(insitu.read(group, path, decode=False), values)


def test_a_variable_that_the_builder_has_named_anew(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("in side/t", data=np.array(["ab", "c"], object))
    inside = (
        '<String name="in_side_t"><Dim size="{}"/><Attribute name="fullnamepath" type="String">'
        '<Value>/in side/t</Value></Attribute><dmrpp:chunks/></String><String name="gone"><dmrpp:chunks/></String>'
    )
    with pytest.warns(InsituWarning, match="variable gone.*data file does not help: there is no variable 'gone'"):
        found = insitu.scan(_write_beside(tmp_path / "a.h5", inside.format(2)), decode=False, errors="warn")
    assert insitu.read(found, "in_side_t", decode=False).tolist() == ["ab", "c"]
    with pytest.raises(UnsupportedError, match=r"length of these texts.*variable in_side_t"):  # of another shape there
        _beside(tmp_path / "a.h5", inside.format(3))


def test_a_document_whose_data_file_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(_document('<String name="t"><dmrpp:chunks/></String>', href="a.xml"))
    with pytest.raises(UnsupportedError, match="DMR\\+\\+ document, too"):
        insitu.scan(tmp_path / "a.xml", decode=False)


def test_flipped_bytes_do_no_harm() -> None:
    members = '<Int32 name="n"/><String name="t"/>'
    data = _armoured(np.int32(3).tobytes() + base64.b64encode(b"abc") + b";")
    document = _document(
        '<String name="t"><Dim size="3"/><dmrpp:vlsa><v c="2">a</v><v s="2">'
        + _armoured(zlib.compress(b"bc"))
        + "</v></dmrpp:vlsa></String>"
        f'<Structure name="r">{members}<dmrpp:specialstructuredata>{data}</dmrpp:specialstructuredata></Structure>'
        f'<Structure name="s">{MEMBERS}<Dim size="2"/>'
        '<dmrpp:chunks fillValue="7 -1.5 1 2 3 4 5 6" structOffset="8 16 32"/></Structure>'
    )
    assert count_refused(flip(document, range(len(document)), (0x01, 0x04, 0x10, 0x80)), read_all)


def _rows(count: int, form: str, between: str = "") -> str:
    return between.join(form.format(offset=7 * n, nbytes=n + 1, at=2 * n) for n in range(count))


PLAIN = '<dmrpp:chunk offset="{offset}" nBytes="{nbytes}" chunkPositionInArray="[{at}]"/>'
FORMS = {
    "alike": (PLAIN, ""),
    "on lines": (PLAIN, "\n      "),
    "other order": ('<dmrpp:chunk chunkPositionInArray="[{at}]" nBytes="{nbytes}" offset="{offset}"/>', ""),
    "masks": ('<dmrpp:chunk offset="{offset}" nBytes="{nbytes}" chunkPositionInArray="[{at}]" fm="0"/>', "\n"),
    "two tags": ('<dmrpp:chunk offset="{offset}" nBytes="{nbytes}" chunkPositionInArray="[{at}]"></dmrpp:chunk>', ""),
    "single quotes": ("<dmrpp:chunk offset='{offset}' nBytes='{nbytes}' chunkPositionInArray='[{at}]'/>", ""),
    "comments": (PLAIN, "<!-- between -->"),
    "wide": ('<dmrpp:chunk  offset="{offset}"\n nBytes="{nbytes}" chunkPositionInArray="[{at}]" />', " "),
}


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_any_form(form: str) -> None:
    """Most are read without XML; whatever is written otherwise must give the same."""
    sizes = "<dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>"
    empty = f'<Int8 name="e{{}}"><Dim size="4"/><dmrpp:chunks fillValue="3">{sizes}</dmrpp:chunks></Int8>'
    none = '<Int8 name="n"><Dim size="4"/><dmrpp:chunks fillValue="&gt;"/></Int8>'
    listed = f'<Int8 name="v"><Dim size="40"/><dmrpp:chunks>{sizes}\n{_rows(20, *FORMS[form])}\n</dmrpp:chunks></Int8>'
    group = _open(empty.format(1) + none + listed + empty.format(2))
    chunks = group.arrays["v"].tiles[0].chunks
    found = [chunks[n] for n in range(20)]
    assert [(cell.offset, cell.length) for cell in found if isinstance(cell, Stored)] == [
        (7 * n, n + 1) for n in range(20)
    ]
    assert all(insitu.read(group, f"e{n}", decode=False).tolist() == [3] * 4 for n in (1, 2))


@pytest.mark.parametrize(
    "row",
    [
        PLAIN.format(offset="", nbytes=3, at=4), PLAIN.format(offset="9" * 30, nbytes=3, at=4),
        PLAIN.format(offset=1, nbytes=3, at=3),
        PLAIN.format(offset=1, nbytes=3, at=400), PLAIN.format(offset=-1, nbytes=3, at=4),
        PLAIN.format(offset=1, nbytes=3, at="0,0"),
        "<nonsense/", PLAIN.format(offset="1 1", nbytes=3, at=4),
    ],
)  # fmt: skip
def test_lists_with_one_bad_row(row: str) -> None:
    sizes = "<dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>"
    with pytest.raises(FormatError):
        _open(f'<Int8 name="v"><Dim size="40"/><dmrpp:chunks>{sizes}{_rows(5, PLAIN)}{row}</dmrpp:chunks></Int8>')
    with pytest.raises(FormatError):
        _open(f'<Int8 name="v"><Dim size="40"/><dmrpp:chunks>{sizes}{row}</dmrpp:chunks></Int8>')


HUGE = "9" * 20
LONG = "1" * 5000
ONE_AXIS = '<Dim size="1"/>'
CHUNK = '<dmrpp:chunk offset="0" nBytes="2" chunkPositionInArray="[0]"/>'


@pytest.mark.parametrize(
    "inside",
    [
        f'<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>{HUGE}</dmrpp:chunkDimensionSizes>'
        f"{CHUNK}</dmrpp:chunks></Int8>",
        f'<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>{LONG}</dmrpp:chunkDimensionSizes>'
        f"{CHUNK}</dmrpp:chunks></Int8>",
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>x</dmrpp:chunkDimensionSizes>'
        "</dmrpp:chunks></Int8>",
        f'<Int8 name="v"><Dim size="4"/><dmrpp:chunk offset="{HUGE}" nBytes="4"/></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunk offset="0"/></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunk offset="0" nBytes="x"/></Int8>',
        f'<Structure name="s"><Int8 name="a"/><Dim size="2"/><dmrpp:chunks structOffset="{LONG}"/></Structure>',
        f'<Structure name="s"><Int8 name="a">{ONE_AXIS * 70}</Int8><Dim size="2"/><dmrpp:chunks/></Structure>',
        '<String name="t"><dmrpp:FixedLengthStringArray string_length="999999999999999999"/>'
        '<dmrpp:chunk offset="0" nBytes="4"/></String>',
    ],
)
def test_numbers_that_nothing_can_have_are_damage(inside: str) -> None:
    with pytest.raises(FormatError):
        _open(inside)


def test_an_encoding_that_is_not_known() -> None:
    document = b'<?xml version="1.0" encoding="koi8-q"?><Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#"/>'
    with pytest.raises(FormatError, match="encoding"):
        scan_format(MemorySource(document), format="dmrpp")
