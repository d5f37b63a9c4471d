// The page: shows what the address says, asks for a token, notices when the server is gone.

import { ApiError, askJson, followProblems, keepToken, Latest, takeTokenFromAddress, token } from "./api.js";
import { changeState, followState, formatState, readState, startAddress } from "./address.js";
import { openArchive } from "./archive.js";
import { DatasetTree, shortName } from "./dataset_tree.js";
import { element } from "./element.js";
import { askFormula, FormulaBar } from "./formula_bar.js";
import { groupPage } from "./group_page.js";
import { Listing } from "./listing.js";
import { errorBox } from "./messages.js";
import { startTheme } from "./theme.js";
import { askToken, forgetButton } from "./token_dialog.js";
import { VariablePage } from "./variable_page.js";
import { stillView } from "./view.js";

/** @import { State } from "./address.js" */
/** @import { Archive } from "./archive.js" */
/** @import { Child } from "./element.js" */
/** @import { Page } from "./view.js" */

/**
 * Answer of `api/server`.
 *
 * @typedef {object} ServerState
 * @property {string} version
 * @property {boolean} needs_token
 * @property {string | null} open archive that the server was started for; null without the token
 */

/**
 * An archive that is open.
 *
 * @typedef {object} OpenArchive
 * @property {string} url as the address names it
 * @property {Archive} archive
 * @property {DatasetTree} tree
 */

const RETRY_INTERVAL = 1500; // ms between two attempts to reach a server that is gone

/**
 * Return an element of index.html.
 *
 * @param {string} id
 */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Return a page that says one thing.
 *
 * @param {...Child} children
 */
function messagePage(...children) {
  return stillView(element("main", { id: "main" }, ...children));
}

/** The explorer in this tab: the server, the archive that is open, the page that is shown. */
class Explorer {
  /** @type {ServerState | null} */
  #server = null;
  /** @type {OpenArchive | null} */
  #open = null;
  /** @type {Page | null} */
  #page = null;
  /** @type {string | null} What the page shows; null: it is to be made anew. */
  #pageKey = null;
  /** @type {ReturnType<typeof setInterval> | null} */
  #retryTimer = null;
  #isAskingToken = false;
  #isFollowing = false;
  #opening = new Latest();
  #body = byId("body");
  #banner = byId("banner");
  #forget = forgetButton();

  constructor() {
    followProblems((problem) => (problem.status === 401 ? this.#renewToken() : this.#waitForServer()));
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();
      const main = document.getElementById("main");
      main?.setAttribute("tabindex", "-1");
      main?.focus();
    });
    byId("tools").prepend(this.#forget);
    startTheme(byId("theme"), () => this.#page?.recolour());
  }

  /** Learn what the server is, and show what the address says from now on. */
  async start() {
    this.#server ??= await askServer();
    byId("version").textContent = this.#server.version;
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    this.#openServersArchive();
    followState((state) => this.#show(state));
    startAddress();
  }

  /**
   * Show a page (listing, group, variable), unless it is there already.
   *
   * @param {string} key
   * @param {() => Page} make
   * @param {HTMLElement | null} side
   * @returns {Page}
   */
  #setPage(key, make, side = null) {
    if (this.#page && key === this.#pageKey) return this.#page;
    this.#page?.close();
    const page = make();
    this.#page = page;
    this.#pageKey = key;
    this.#body.className = side ? "with-side" : "";
    this.#body.replaceChildren(...(side ? [side] : []), page.element);
    return page;
  }

  /** @param {State} state */
  async #show(state) {
    document.title = state.url
      ? `${state.variable ? `${state.variable} · ` : ""}${shortName(state.url)} · insitu`
      : "insitu explorer";
    byId("crumb").textContent = state.url ?? "";
    this.#opening.stop();
    if (!state.url) {
      this.#open = null;
      await this.#setPage("listing", () => new Listing()).update(state);
      return;
    }
    let open = this.#open;
    if (open?.url !== state.url) {
      open = await this.#openArchive(state.url);
      if (!open) return;
      this.#open = open;
    }
    // Another variable may have been chosen while the archive was opened.
    await this.#showArchive(open, readState());
  }

  /**
   * Return the archive at a URL; null if it cannot be opened, or something newer is opened meanwhile.
   *
   * @param {string} url
   * @returns {Promise<OpenArchive | null>}
   */
  async #openArchive(url) {
    this.#setPage(`opening ${url}`, () =>
      stillView(
        element(
          "main",
          { class: "opening", id: "main" },
          element("p", { role: "status" }, `Opening ${url} …`),
          element("div", { class: "loading" }),
        ),
      ),
    );
    try {
      const archive = await this.#opening.run((signal) => openArchive(url, signal));
      return archive ? { url, archive, tree: new DatasetTree(archive) } : null;
    } catch (problem) {
      this.#pageKey = null;
      if (await isFolder(url)) changeState({ folder: url }, { fresh: true, replace: true });
      else this.#setPage(`problem ${url}`, () => messagePage(errorBox(problem, () => this.#reload())));
      return null;
    }
  }

  /**
   * @param {OpenArchive} open
   * @param {State} state
   */
  async #showArchive({ archive, tree }, state) {
    if (state.variable?.startsWith("=")) return this.#showFormula(archive, tree, state.variable);
    const variable = archive.variable(state.variable);
    const first = state.variable === undefined && state.group === undefined ? archive.firstVariable : undefined;
    if (first) {
      changeState({ variable: first.path }, { replace: true });
      return;
    }
    const path = (state.group ?? "").replace(/^\/+|\/+$/g, "");
    tree.mark(variable, path);
    let page;
    if (variable) {
      const needsToken = Boolean(this.#server?.needs_token);
      const make = () => new VariablePage(archive, variable, needsToken);
      page = this.#setPage(`variable ${state.url} ${variable.path}`, make, tree.element);
    } else if (state.variable !== undefined) {
      const text = `There is no variable ${state.variable} in ${archive.url}.`;
      const problem = new ApiError(404, text, [], { kind: "variable" });
      page = this.#setPage(`missing ${state.variable}`, () => messagePage(errorBox(problem)), tree.element);
    } else {
      const group = archive.group(path) ?? archive.groups[0];
      page = this.#setPage(`group ${state.url} ${group.path}`, () => groupPage(archive, group), tree.element);
    }
    await page.update(state);
  }

  /**
   * @param {Archive} archive
   * @param {DatasetTree} tree
   * @param {string} path the formula after `=`
   */
  async #showFormula(archive, tree, path) {
    tree.mark(undefined, "");
    const key = `variable ${archive.url} ${path}`;
    if (this.#pageKey !== key) {
      try {
        const variable = await this.#opening.run(() => askFormula(archive.url, path));
        if (!variable) return;
        const needsToken = Boolean(this.#server?.needs_token);
        this.#setPage(key, () => new VariablePage(archive, variable, needsToken), tree.element);
      } catch (problem) {
        this.#pageKey = null;
        const bar = new FormulaBar(archive, path);
        this.#setPage(`problem ${path}`, () => messagePage(bar.element, errorBox(problem)), tree.element);
        bar.input.focus();
        return;
      }
    }
    await this.#page?.update(readState());
  }

  /** Ask again for what is shown. */
  #reload() {
    const state = readState();
    if (this.#open && state.url && this.#page instanceof VariablePage) return this.#page.reload();
    this.#open = null;
    this.#pageKey = null;
    return this.#show(state);
  }

  /** Say that the server is gone, and try again until it answers. */
  #waitForServer() {
    if (this.#retryTimer !== null) return;
    this.#banner.hidden = false;
    this.#banner.replaceChildren(
      element("strong", {}, "The server does not answer."),
      " It was stopped, or the network is down. The page tries again by itself.",
    );
    const timer = setInterval(async () => {
      try {
        this.#server = await askServer();
      } catch {
        return;
      }
      clearInterval(timer);
      this.#retryTimer = null;
      this.#banner.hidden = true;
      await this.start();
      this.#reload();
    }, RETRY_INTERVAL);
    this.#retryTimer = timer;
  }

  async #renewToken() {
    if (this.#isAskingToken) return;
    this.#isAskingToken = true;
    const message = token() ? "The server does not accept this token." : "Enter the token that the operator gave you.";
    keepToken(null);
    await askToken(message);
    this.#isAskingToken = false;
    this.#server = await askServer().catch(() => this.#server);
    this.#openServersArchive();
    this.#forget.hidden = !token();
    this.#reload();
  }

  /** Go to the archive that the server was started for, unless the address names something; without a token the server
   * does not say which. */
  #openServersArchive() {
    const url = this.#server?.open;
    if (!location.hash && url) history.replaceState(null, "", formatState({ url }));
  }
}

/**
 * Return whether what could not be opened is a folder with something in it, which can be listed.
 *
 * @param {string} url
 */
async function isFolder(url) {
  const answer = await askJson("list", { folder: url }).catch(() => null);
  return Boolean(answer?.entries.length);
}

/** @returns {Promise<ServerState>} */
function askServer() {
  return askJson("server");
}

takeTokenFromAddress();
// A server that is gone is waited for; the banner says so.
new Explorer().start().catch((problem) => {
  if (!(problem instanceof ApiError)) throw problem;
});
