// The time that a text may take to be read for drawing. Each text that used it up halves it for those behind it, so
// that many of them do not hold the page up one after the other.

let budget = 250; // milliseconds

// short is below how many characters a text is read whole, whatever it is: that takes a moment at most, and a busy
// machine must not leave it unread.
const short = 4000;

// timer gives a function that throws once the time is over that begins here, for a text of so many characters.
export function timer(length) {
  if (length < short) return () => {};
  const end = performance.now() + budget;
  return () => {
    if (performance.now() <= end) return;
    budget = Math.max(30, budget / 2);
    throw new Error("the text takes too long to read");
  };
}
