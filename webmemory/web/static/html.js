// Preact with its hooks, and html`…`, which makes nodes without a compiler.

import { useLayoutEffect, useRef } from "./vendor/hooks.mjs";
import { h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { h, render, Component, Fragment } from "./vendor/preact.mjs";
export * from "./vendor/hooks.mjs";
export const html = htm.bind(h);

// useListener calls listen for the window's events of a type while on is true.
export function useListener(type, listen, on = true) {
  const latest = useRef();
  latest.current = listen;
  useLayoutEffect(() => {
    if (!on) return;
    const call = (e) => latest.current(e);
    addEventListener(type, call);
    return () => removeEventListener(type, call);
  }, [on]);
}
