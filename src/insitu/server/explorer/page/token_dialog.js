// Entry of the server's token. It is kept in this tab's session storage and sent as a header, never in an address.

import { keepToken, token } from "./api.js";
import { element } from "./element.js";

let open = null;

/** Ask for a token; resolves when one was entered. `message` says why. */
export function askToken(message) {
  if (open) {
    open.note.textContent = message;
    return open.done;
  }
  const note = element("p", { class: "note", role: "alert" }, message);
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
    note,
    element("label", { for: "token" }, "Token"),
    input,
    element("p", { class: "muted small-text" }, "It stays in this tab until you close it, and is not part of links."),
    element("div", { class: "row" }, element("button", { type: "submit", class: "primary" }, "Continue")),
  );
  const dialog = element("dialog", { class: "dialog", "aria-label": "Token" }, form);
  document.body.append(dialog);
  const done = new Promise((resolve) => {
    form.addEventListener("submit", () => {
      keepToken(input.value.trim());
      open = null;
      dialog.remove();
      resolve();
    });
  });
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  open = { note, done };
  dialog.showModal();
  input.focus();
  return done;
}

/** Return a button that forgets the token; hidden while there is none. */
export function forgetButton() {
  const button = element(
    "button",
    {
      type: "button",
      class: "quiet",
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
