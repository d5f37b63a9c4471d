// Code that gives exactly what is on the screen: Python, xarray over /zarr, the command line, curl.

import { address } from "./api.js";
import { element } from "./element.js";

const python = (text) => JSON.stringify(text);
const shell = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const isPattern = (url) => /[*?[]/.test(url) || (url.endsWith("/") && !/\.(zarr|insitu|icechunk|parq)\/$/.test(url));

/** The selection of a picture: `{variable, y, x, index, box, statistic, over}` as Python's isel and CLI slices. */
function selectors({ variable, y, x, index, box, over }) {
  return variable.dims.map((dim, at) => {
    const size = variable.shape[at];
    const side = dim === y ? [box[0], box[1]] : dim === x ? [box[2], box[3]] : null;
    if (side) return { dim, slice: side, whole: side[0] === 0 && side[1] === size };
    if (over.includes(dim)) return { dim, slice: [0, size], whole: true };
    return { dim, at: index[dim] ?? 0 };
  });
}

const keyword = (name) => /^[A-Za-z_]\w*$/.test(name);

function isel(view) {
  const parts = selectors(view)
    .filter(({ whole }) => !whole)
    .map(({ dim, at, slice }) => [dim, slice ? `slice(${slice[0]}, ${slice[1]})` : String(at)]);
  if (!parts.length) return "";
  if (parts.every(([dim]) => keyword(dim))) return `.isel(${parts.map(([dim, text]) => `${dim}=${text}`).join(", ")})`;
  return `.isel({${parts.map(([dim, text]) => `${python(dim)}: ${text}`).join(", ")}})`;
}

function steps(view) {
  const { variable, y, x, statistic, over } = view;
  const reduced = over.length
    ? `.${statistic}(${over.length === 1 ? python(over[0]) : `[${over.map(python).join(", ")}]`})`
    : "";
  const order = variable.dims.filter((dim) => dim === y || dim === x);
  const turned = y && x && order[0] !== y ? `.transpose(${python(y)}, ${python(x)})` : "";
  return `${isel(view)}${reduced}${turned}`;
}

/** Return Python code that makes `field`. */
export function pythonSnippet(archive, view) {
  const urls = archive.urls ?? [archive.url];
  const many = urls.length > 1 || isPattern(urls[0]);
  const what = urls.length > 1 ? `[${urls.map(python).join(", ")}]` : python(urls[0]);
  const group = view.variable.group ? `, group=${python(view.variable.group)}` : "";
  return `import insitu\n\nds = insitu.${many ? "open_mfdataset" : "open_dataset"}(${what}${group})\nfield = ds[${python(view.variable.name)}]${steps(view)}\n`;
}

/** Return code that reads the same by any Zarr client, over the server's /zarr; null where it has no one address. */
export function zarrSnippet(archive, view) {
  const urls = archive.urls ?? [archive.url];
  if (urls.length > 1 || (isPattern(urls[0]) && urls[0].endsWith("/"))) return null;
  const path = urls[0].replace(/^\/+/, "").split("/").map(encodeURIComponent).join("/");
  const store = new URL(`../../zarr/${path}!/`, import.meta.url).href;
  const group = view.variable.group ? `, group=${python(view.variable.group)}` : "";
  return `import xarray as xr\n\nds = xr.open_zarr(${python(store)}${group})\nfield = ds[${python(view.variable.name)}]${steps(view)}\n`;
}

/** Return a command that writes or prints the same. */
export function commandSnippet(archive, view) {
  const urls = archive.urls ?? [archive.url];
  if (urls.length > 1) return null;
  const { variable, statistic, over } = view;
  const cut = selectors(view)
    .map(({ at, slice, whole }) => (whole ? ":" : slice ? `${slice[0]}:${slice[1]}` : String(at)))
    .join(", ");
  const path = shell(variable.dims.length ? `${variable.path}[${cut}]` : variable.path);
  if (!over.length) return `insitu read ${shell(urls[0])} ${path} -o field.nc\n`;
  return `insitu reduce ${shell(urls[0])} ${path} ${statistic} ${over.map((dim) => `--dim ${shell(dim)}`).join(" ")}\n`;
}

/** Return a curl command that downloads the field as NetCDF. The token stays in a variable of the shell. */
export function curlSnippet(parameters, needsToken) {
  const header = needsToken ? ` -H "Authorization: Bearer $INSITU_TOKEN"` : "";
  return `curl -f${header} -o field.nc ${shell(address("download", { ...parameters, format: "netcdf" }).href)}\n`;
}

/** Return a box with tabs of snippets, each with a button that copies it. */
export function snippetBox(entries) {
  const code = element("code", {});
  const shown = entries.filter(([, text]) => text);
  const copy = element(
    "button",
    {
      type: "button",
      class: "copy",
      onclick: async () => {
        await copyText(code.textContent);
        copy.textContent = "Copied";
        setTimeout(() => (copy.textContent = "Copy"), 1500);
      },
    },
    "Copy",
  );
  const tabs = shown.map(([name, text]) =>
    element(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": "false",
        "data-snippet": name,
        onclick: () => choose(name, text),
      },
      name,
    ),
  );
  const choose = (name, text) => {
    code.textContent = text;
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.textContent === name));
  };
  choose(...shown[0]);
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

async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages that came over plain HTTP from another machine have no clipboard: select and copy as by hand.
  const area = element("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}
