// Binary answers: uint32 length of the header, JSON header, then the arrays that the header lists.

/**
 * Arrays of an answer by name: those of 64-bit integers come as doubles.
 *
 * @typedef {Float32Array | Float64Array | Int32Array | Uint32Array | Int16Array | Uint16Array | Int8Array | Uint8Array} Numbers
 */

/**
 * What a binary answer describes: `header` as the route says, and its arrays.
 *
 * @typedef {{ header: any, arrays: Record<string, Numbers> }} BinaryAnswer
 */

/** @type {Record<string, any>} */
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

/**
 * Return header and arrays; 64-bit integers become doubles, which hold every index exactly.
 *
 * @param {ArrayBuffer} buffer
 * @returns {BinaryAnswer}
 */
export function parseArrays(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const begin = 4 + length;
  /** @type {Record<string, Numbers>} */
  const arrays = {};
  for (const { name, dtype, shape, offset } of header.arrays) {
    const Type = TYPES[dtype];
    if (!Type) throw new TypeError(`the server sends an array of type ${dtype}, which this page does not know`);
    const count = shape.reduce((/** @type {number} */ product, /** @type {number} */ size) => product * size, 1);
    const at = begin + offset;
    // A view must begin at a multiple of its type's size; the server pads to eight bytes, a copy is for others.
    const isAligned = at % Type.BYTES_PER_ELEMENT === 0;
    const data = isAligned
      ? new Type(buffer, at, count)
      : new Type(buffer.slice(at, at + count * Type.BYTES_PER_ELEMENT));
    arrays[name] = dtype.endsWith("8") && dtype[1] !== "f" ? Float64Array.from(data, Number) : data;
  }
  return { header, arrays };
}
