// What zarrita.js sees of a store: every array of the root with its shape and values, as JSON.
import * as zarr from "zarrita";

const url = process.argv[2];
const version = process.argv[3];
const store = new zarr.FetchStore(url);
const open = version === "2" ? zarr.open.v2 : zarr.open.v3;
const found = {};
for (const name of process.argv.slice(4)) {
  const array = await open(zarr.root(store).resolve(name), { kind: "array" });
  const chunk = await zarr.get(array, null);
  const part = array.shape.length ? await zarr.get(array, array.shape.map((n) => zarr.slice(0, n, 2))) : null;
  found[name] = {
    shape: array.shape,
    values: Array.from(chunk.data, Number),
    part: part && Array.from(part.data, Number),
    attributes: array.attrs,
  };
}
console.log(JSON.stringify(found));
