// Text that the browser keeps in localStorage or sessionStorage. A browser may block both.

// readKept returns the text under a name, or null.
export function readKept(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

// keep stores a text under a name. An empty text deletes the name.
export function keep(storage, name, text) {
  try {
    if (text) window[storage].setItem(name, text);
    else window[storage].removeItem(name);
  } catch { /* the text lasts until the page reloads */ }
}
