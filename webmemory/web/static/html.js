// Preact with its hooks, and html`…`, which makes nodes without a compiler.

import { h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { h, render, Component, Fragment } from "./vendor/preact.mjs";
export * from "./vendor/hooks.mjs";
export const html = htm.bind(h);
