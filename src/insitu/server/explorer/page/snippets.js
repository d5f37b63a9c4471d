// Code that gives exactly what is on the screen: Python, xarray over /zarr, the command line, curl.

import { address } from "./api.js";
import { element } from "./element.js";

/** @import { Archive } from "./archive.js" */
/** @import { Parameters } from "./api.js" */
/** @import { Plane } from "./plane.js" */

/**
 * How one dimension is selected: a position, several, or a range that may be the whole dimension.
 *
 * @typedef {{ dim: string, at: number | number[] } | { dim: string, slice: [number, number], isWhole: boolean }} Selector
 */

/** @param {string} text */
const python = (text) => JSON.stringify(text);
/** @param {string} text */
const shell = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
/** @param {string} url */
const isPattern = (url) => /[*?[]/.test(url) || (url.endsWith("/") && !/\.(zarr|insitu|icechunk|parq)\/$/.test(url));

/**
 * Return how each dimension of a plane is selected.
 *
 * @param {Plane} plane
 * @returns {Selector[]}
 */
function selectors({ variable, y, x, index, box, over, composite }) {
  return variable.dims.map((dim, at) => {
    const size = variable.shape[at];
    const [first, end] = dim === y ? [box[0], box[1]] : dim === x ? [box[2], box[3]] : [0, size];
    if (dim === y || dim === x || over.includes(dim) || size === 0)
      return { dim, slice: [first, end], isWhole: first === 0 && end === size };
    return { dim, at: dim === composite?.dim ? composite.bands : (index[dim] ?? 0) };
  });
}

/** @param {string} name */
const isKeyword = (name) => /^[A-Za-z_]\w*$/.test(name);

/** @param {Plane} plane */
function isel(plane) {
  const parts = selectors(plane)
    .filter((selector) => "at" in selector || !selector.isWhole)
    .map((selector) => [
      selector.dim,
      "at" in selector ? JSON.stringify(selector.at).replaceAll(",", ", ") : `slice(${selector.slice[0]}, ${selector.slice[1]})`,
    ]);
  if (!parts.length) return "";
  if (parts.every(([dim]) => isKeyword(dim)))
    return `.isel(${parts.map(([dim, text]) => `${dim}=${text}`).join(", ")})`;
  return `.isel({${parts.map(([dim, text]) => `${python(dim)}: ${text}`).join(", ")}})`;
}

/** @param {Plane} plane */
function steps(plane) {
  const { variable, y, x, statistic, over, composite } = plane;
  const reduced = over.length
    ? `.${statistic}(${over.length === 1 ? python(over[0]) : `[${over.map(python).join(", ")}]`})`
    : "";
  const kept = [y, x, ...(composite ? [composite.dim] : [])].filter((dim) => dim !== null);
  const order = variable.dims.filter((dim) => kept.includes(dim));
  const turned = order.join() !== kept.join() ? `.transpose(${kept.map(python).join(", ")})` : "";
  return `${isel(plane)}${reduced}${turned}`;
}

/**
 * Return the imports that the code of a formula needs.
 *
 * @param {string} formula
 */
function imports(formula) {
  return `${/\bnp\./.test(formula) ? "import numpy as np\n" : ""}${/\bxr\./.test(formula) ? "import xarray as xr\n" : ""}`;
}

/**
 * Return Python code that makes `field`.
 *
 * @param {Archive} archive
 * @param {Plane} plane
 */
export function pythonSnippet(archive, plane) {
  const urls = archive.urls ?? [archive.url];
  const many = urls.length > 1 || isPattern(urls[0]);
  const what = urls.length > 1 ? `[${urls.map(python).join(", ")}]` : python(urls[0]);
  const inside = plane.variable.group;
  const group = inside ? `, group=${python(inside)}` : "";
  // A group of many files has the labels of the groups above it in a tree only.
  const opened = many
    ? inside ? `open_mfdatatree(${what})[${python(inside)}].to_dataset()` : `open_mfdataset(${what})`
    : `open_dataset(${what}${group})`;
  const view = archive.python ?? "";
  const formula = plane.variable.python;
  if (formula === undefined)
    return `import insitu\n\nds = insitu.${opened}${view}\nfield = ds[${python(plane.variable.name)}]${steps(plane)}\n`;
  const tree = `tree = insitu.${many ? "open_mfdatatree" : "open_datatree"}(${what})\n`;
  return `${imports(formula)}import insitu\n\nds = insitu.${opened}${view}\n${formula.includes("tree[") ? tree : ""}field = (${formula})${steps(plane)}\n`;
}

/**
 * Return code that reads the same by any Zarr client, over the server's /zarr; null where it has no one address.
 *
 * @param {Archive} archive
 * @param {Plane} plane
 */
export function zarrSnippet(archive, plane) {
  const urls = archive.urls ?? [archive.url];
  if (archive.python || urls.length > 1 || (isPattern(urls[0]) && urls[0].endsWith("/"))) return null;
  const path = urls[0].replace(/^\/+/, "").split("/").map(encodeURIComponent).join("/");
  const store = new URL(`../../zarr/${path}!/`, import.meta.url).href;
  const formula = plane.variable.python;
  if (formula?.includes("tree[")) return null;
  if (formula !== undefined)
    return `import numpy as np\nimport xarray as xr\n\nds = xr.open_zarr(${python(store)})\nfield = (${formula})${steps(plane)}\n`;
  const group = plane.variable.group ? `, group=${python(plane.variable.group)}` : "";
  return `import xarray as xr\n\nds = xr.open_zarr(${python(store)}${group})\nfield = ds[${python(plane.variable.name)}]${steps(plane)}\n`;
}

/**
 * Return a command that writes or prints the same; null for several archives.
 *
 * @param {Archive} archive
 * @param {Plane} plane
 */
export function commandSnippet(archive, plane) {
  const urls = archive.urls ?? [archive.url];
  if (archive.python || urls.length > 1 || plane.variable.python !== undefined || plane.composite) return null;
  const { variable, statistic, over } = plane;
  const cut = selectors(plane)
    .map((selector) => {
      if ("at" in selector) return String(selector.at);
      return selector.isWhole ? ":" : `${selector.slice[0]}:${selector.slice[1]}`;
    })
    .join(", ");
  const path = shell(variable.dims.length ? `${variable.path}[${cut}]` : variable.path);
  if (!over.length) return `insitu read ${shell(urls[0])} ${path} -o field.nc\n`;
  return `insitu reduce ${shell(urls[0])} ${path} ${statistic} ${over.map((dim) => `--dim ${shell(dim)}`).join(" ")}\n`;
}

/**
 * Return a curl command that downloads the field as NetCDF. The token stays in a variable of the shell.
 *
 * @param {Parameters} parameters
 * @param {boolean} needsToken
 * @param {string} [route]
 * @param {string} [file] that is written
 */
export function curlSnippet(parameters, needsToken, route = "download", file = "field.nc") {
  const header = needsToken ? ` -H "Authorization: Bearer $INSITU_TOKEN"` : "";
  return `curl -f${header} -o ${file} ${shell(address(route, { ...parameters, format: "netcdf" }).href)}\n`;
}

/**
 * Return a box with tabs of snippets, each with a button that copies it.
 *
 * @param {[string, string | null][]} entries name and text of each; one without a text is left out
 */
export function snippetBox(entries) {
  const code = element("code", {});
  const copy = element(
    "button",
    {
      type: "button",
      class: "copy",
      onclick: async () => {
        await copyText(code.textContent ?? "");
        copy.textContent = "Copied";
        setTimeout(() => (copy.textContent = "Copy"), 1500);
      },
    },
    "Copy",
  );
  const snippets = entries.flatMap(([name, text]) => (text === null ? [] : [{ name, text }]));
  const tabs = snippets.map((snippet) =>
    element(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": "false",
        "data-snippet": snippet.name,
        onclick: () => choose(snippet),
      },
      snippet.name,
    ),
  );
  /** @param {{ name: string, text: string }} snippet */
  const choose = ({ name, text }) => {
    code.textContent = text;
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.textContent === name));
  };
  choose(snippets[0]);
  return element(
    "div",
    { class: "snippets" },
    element(
      "div",
      { class: "card-head" },
      element("div", { class: "chips", role: "group", "aria-label": "Language of the snippet" }, tabs),
      copy,
    ),
    element("pre", { tabindex: "0" }, code),
  );
}

/** @param {string} text */
async function copyText(text) {
  // TypeScript believes that every page has one.
  const clipboard = /** @type {Clipboard | undefined} */ (navigator.clipboard);
  if (clipboard) return clipboard.writeText(text);
  // Pages that came over plain HTTP from another machine have no clipboard: select and copy as by hand.
  const area = element("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}
