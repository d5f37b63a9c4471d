// The page: shows what the address says, asks for a token, notices when the server is gone.

import { askJson, followProblems, keepToken, Latest, token } from "./api.js";
import { changeState, followState, formatState, readState, startAddress } from "./address.js";
import { openArchive } from "./archive.js";
import { DatasetTree, shortName } from "./dataset_tree.js";
import { element } from "./element.js";
import { GroupPage } from "./group_page.js";
import { Listing } from "./listing.js";
import { errorBox } from "./messages.js";
import { startTheme } from "./theme.js";
import { askToken, forgetButton } from "./token_dialog.js";
import { VariablePage } from "./variable_page.js";

const AGAIN = 1500; // ms between two attempts to reach a server that is gone

const body = document.getElementById("body");
const crumb = document.getElementById("crumb");
const banner = document.getElementById("banner");

let server = null;
let archive = null;
let tree = null;
let page = null;
let pageKey = null;
const opening = new Latest();

/** Show a page (listing, group, variable), unless it is there already. */
function setPage(key, make, side = null) {
  if (key === pageKey) return;
  page?.close();
  pageKey = key;
  page = make();
  body.className = side ? "with-side" : "";
  body.replaceChildren(...(side ? [side] : []), page.element);
}

async function show(state) {
  document.title = state.url
    ? `${state.variable ? `${state.variable} · ` : ""}${shortName(state.url)} · insitu`
    : "insitu explorer";
  crumb.textContent = state.url ?? "";
  if (!state.url) {
    opening.stop();
    archive = null;
    setPage("listing", () => new Listing());
    return page.update(state);
  }
  if (archive?.url !== state.url && archive?.asked !== state.url) {
    const found = await load(state);
    if (!found) return undefined;
  }
  return showArchive(readState());
}

async function load(state) {
  setPage(`opening ${state.url}`, () =>
    still(
      element(
        "main",
        { class: "opening", id: "main" },
        element("p", { role: "status" }, `Opening ${state.url} …`),
        element("div", { class: "loading" }),
      ),
    ),
  );
  try {
    const found = await opening.run((signal) => openArchive(state.url, signal));
    if (!found) return null;
    archive = found;
    archive.asked = state.url;
    tree = new DatasetTree(archive);
    return archive;
  } catch (problem) {
    pageKey = null;
    setPage(`problem ${state.url}`, () => still(element("main", { id: "main" }, errorBox(problem, reload))));
    return null;
  }
}

function showArchive(state) {
  const variable = archive.variable(state.variable);
  if (state.variable === undefined && state.group === undefined && archive.firstVariable)
    return changeState({ variable: archive.firstVariable.path }, { replace: true });
  const path = (state.group ?? "").replace(/^\/+|\/+$/g, "");
  tree.mark(variable, path);
  if (variable)
    setPage(`variable ${state.url} ${variable.path}`, () => new VariablePage(archive, variable, server), tree.element);
  else if (state.variable !== undefined)
    setPage(
      `missing ${state.variable}`,
      () =>
        still(
          element(
            "main",
            { id: "main" },
            errorBox(new Error(`There is no variable ${state.variable} in ${archive.url}.`)),
          ),
        ),
      tree.element,
    );
  else {
    const group = archive.group(path) ?? archive.groups[0];
    setPage(`group ${state.url} ${group.path}`, () => new GroupPage(archive, group), tree.element);
  }
  return page.update(state);
}

function still(shown) {
  return { element: shown, update() {}, reload() {}, recolour() {}, close() {} };
}

/** Ask again for what is shown. */
function reload() {
  const state = readState();
  if (archive && state.url && page.reload && pageKey?.startsWith("variable")) return page.reload();
  archive = null;
  pageKey = null;
  return show(state);
}

let waiting = null;

/** Say that the server is gone, and try again until it answers. */
function waitForServer() {
  if (waiting) return;
  banner.hidden = false;
  banner.replaceChildren(
    element("strong", {}, "The server does not answer."),
    " It was stopped, or the network is down. The page tries again by itself.",
  );
  waiting = setInterval(async () => {
    try {
      server = await askJson("server");
    } catch {
      return;
    }
    clearInterval(waiting);
    waiting = null;
    banner.hidden = true;
    await start();
    reload();
  }, AGAIN);
}

let asking = false;

async function renewToken() {
  if (asking) return;
  asking = true;
  const message = token() ? "The server does not accept this token." : "Enter the token that the operator gave you.";
  keepToken(null);
  await askToken(message);
  asking = false;
  server = await askJson("server").catch(() => server);
  openNamed();
  document.getElementById("tools").querySelector(".forget")?.toggleAttribute("hidden", !token());
  reload();
}

followProblems((problem) => (problem.status === 401 ? renewToken() : waitForServer()));

/** Go to the archive that the server was started for, unless the address names something; without a token the server
 * does not say which. */
function openNamed() {
  if (!location.hash && server.open) history.replaceState(null, "", formatState({ url: server.open }));
}

let started = false;

async function start() {
  server ??= await askJson("server");
  document.getElementById("version").textContent = server.version;
  if (started) return;
  started = true;
  openNamed();
  followState(show);
  startAddress();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  const main = document.getElementById("main");
  main?.setAttribute("tabindex", "-1");
  main?.focus();
});

const forget = forgetButton();
forget.classList.add("forget");
document.getElementById("tools").prepend(forget);
startTheme(document.getElementById("theme"), () => page?.recolour());
start().catch(() => {});
