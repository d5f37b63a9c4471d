// What the page and its tabs show: the interface of their contents, and contents that never change.

/** @import { State } from "./address.js" */

/**
 * What fills the page: listing, group, variable.
 *
 * @typedef {object} Page
 * @property {HTMLElement} element
 * @property {(state: State) => unknown} update shows a state
 * @property {() => void} recolour draws again, in the colours of the theme
 * @property {() => void} close stops what is under way
 */

/**
 * What fills a tab of a variable's page.
 *
 * @typedef {Page & { reload: () => unknown }} View
 */

/**
 * Return a page or tab that never changes.
 *
 * @param {HTMLElement} element
 * @returns {View}
 */
export function stillView(element) {
  return { element, update() {}, reload() {}, recolour() {}, close() {} };
}
