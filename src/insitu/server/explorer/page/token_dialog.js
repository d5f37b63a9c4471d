// Entry of the server's token. It is kept in this tab's session storage and sent as a header, never in an address.

import { keepToken, token } from "./api.js";
import { element } from "./element.js";

/**
 * Ask for a token; resolves when one was entered.
 *
 * @param {string} message why it is asked for
 * @returns {Promise<void>}
 */
export function askToken(message) {
  const input = element("input", {
    type: "password",
    id: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", {}, "This server asks for a token"),
    element("p", { class: "note", role: "alert" }, message),
    element("label", { for: "token" }, "Token"),
    input,
    element("p", { class: "muted small-text" }, "It stays in this tab until you close it, and is not part of links."),
    element("div", { class: "row" }, element("button", { type: "submit", class: "primary" }, "Continue")),
  );
  const dialog = element("dialog", { class: "dialog", "aria-label": "Token" }, form);
  document.body.append(dialog);
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return new Promise((resolve) => {
    form.addEventListener("submit", () => {
      keepToken(input.value.trim());
      dialog.remove();
      resolve();
    });
    dialog.showModal();
    input.focus();
  });
}

/** Return a button that forgets the token; hidden while there is none. */
export function forgetButton() {
  const button = element(
    "button",
    {
      type: "button",
      class: "quiet forget",
      hidden: !token(),
      onclick: () => {
        keepToken(null);
        location.reload();
      },
    },
    "Forget token",
  );
  return button;
}
