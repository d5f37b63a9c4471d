// Binary answers: uint32 length of the header, JSON header, then the arrays that the header lists.

const TYPES = {
  "<f4": Float32Array,
  "<f8": Float64Array,
  "<i4": Int32Array,
  "<u4": Uint32Array,
  "<i2": Int16Array,
  "<u2": Uint16Array,
  "|i1": Int8Array,
  "|u1": Uint8Array,
  "<i8": BigInt64Array,
  "<u8": BigUint64Array,
};

/** Return `{header, arrays}`; 64-bit integers become doubles, which hold every index exactly. */
export function parseArrays(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const begin = 4 + length;
  const arrays = {};
  for (const { name, dtype, shape, offset } of header.arrays) {
    const Type = TYPES[dtype];
    if (!Type) throw new TypeError(`the server sends an array of type ${dtype}, which this page does not know`);
    const count = shape.reduce((product, size) => product * size, 1);
    const at = begin + offset;
    const whole = at % Type.BYTES_PER_ELEMENT === 0;
    const data = whole ? new Type(buffer, at, count) : new Type(buffer.slice(at, at + count * Type.BYTES_PER_ELEMENT));
    arrays[name] = dtype.endsWith("8") && dtype[1] !== "f" ? Float64Array.from(data, Number) : data;
  }
  return { header, arrays };
}
