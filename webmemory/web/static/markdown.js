// Markdown as nodes. marked only takes the text apart; nodes are made here, of the kinds listed below and no
// others, so HTML in the text stays text and nothing is ever set as HTML. Images become links: nothing is loaded.

import { h, html, useMemo, useRef } from "./html.js";
import { timer } from "./budget.js";
import { Code } from "./code.js";
import { Lexer, Tokenizer } from "./vendor/marked.mjs";

// longest is how many characters are read as Markdown; a longer text is shown as it is, and so is one that would take
// longer than its time: what a hostile text costs grows with the square of its length.
const longest = 100_000;

// longestPiece bounds what is read in one go inside a paragraph: a longer one is cut at its blanks.
const longestPiece = 1000;

// deepest bounds what is inside of what, which a hostile text could nest without end.
const deepest = 20;

// Markdown shows a text. cite, if given, makes a node of the number in a marker [n], or gives undefined; it is
// called anew when one of its inputs has changed.
export function Markdown({ text, cite, inputs = "" }) {
  const slow = useRef(); // the beginning of the text that took too long, which more of it does not mend
  const drawn = useMemo(() => {
    const all = text ?? "";
    if (all.length > longest || (slow.current && all.startsWith(slow.current))) return plainText(all);
    try {
      return nodes(lexed(all), { cite, depth: 0 });
    } catch { // it takes too long, or is nested too deep
      slow.current = all;
      return plainText(all);
    }
  }, [text, inputs]);
  return html`<div class="md">${drawn}</div>`;
}

const plainText = (text) => html`<pre class="plain">${text}</pre>`;

// lexed takes a text apart. The clock is looked at before each step, of which none takes long.
function lexed(text) {
  const tick = timer(text.length);
  const tokenizer = new Tokenizer();
  for (const step of ["space", "escape"]) { // with which marked begins at each block, and at each piece of a line
    const take = tokenizer[step];
    tokenizer[step] = (src) => {
      tick();
      return take.call(tokenizer, src);
    };
  }
  const lexer = new Lexer({ gfm: true, breaks: true, tokenizer });
  lexer.blockTokens(text.replace(/\r\n?/g, "\n"), lexer.tokens);
  for (const { src, tokens } of lexer.inlineQueue) {
    lexer.state.inRawBlock = false;
    for (const piece of pieces(src)) lexer.inlineTokens(piece, tokens);
  }
  return lexer.tokens;
}

// pieces are a text in parts of at most longestPiece characters.
function* pieces(text) {
  while (text.length > longestPiece) {
    const blank = text.lastIndexOf(" ", longestPiece);
    const at = blank > longestPiece / 2 ? blank : longestPiece;
    yield text.slice(0, at);
    text = text.slice(at);
  }
  yield text;
}

const nodes = (tokens, o) => (tokens ?? []).map((token) => node(token, o));

function node(token, o) {
  if (o.depth > deepest) return token.raw;
  const inside = { ...o, depth: o.depth + 1 };
  switch (token.type) {
    case "space":
    case "def":
    case "checkbox": // box has shown it
      return null;
    case "heading":
      return heading(token.depth, nodes(token.tokens, inside));
    case "paragraph":
      return html`<p>${nodes(token.tokens, inside)}</p>`;
    case "text":
      return token.tokens ? nodes(token.tokens, inside) : plain(token, o);
    case "code":
      return html`<${Code} text=${token.text} info=${token.lang} />`;
    case "blockquote":
    case "strong":
    case "em":
    case "del":
      return h(token.type, null, nodes(token.tokens, inside));
    case "hr":
    case "br":
      return h(token.type);
    case "list": {
      const items = token.items.map((item) => html`<li>${box(item)}${nodes(item.tokens, inside)}</li>`);
      return token.ordered ? html`<ol start=${token.start || 1}>${items}</ol>` : html`<ul>${items}</ul>`;
    }
    case "table":
      return html`<div class="scroll-x" tabindex="0"><table>
        <thead><tr>${token.header.map((c) => html`<th scope="col">${nodes(c.tokens, inside)}</th>`)}</tr></thead>
        <tbody>${token.rows.map((row) => html`<tr>${row.map((c) => html`<td>
          ${nodes(c.tokens, inside)}</td>`)}</tr>`)}</tbody>
      </table></div>`;
    case "html":
      return token.block ? html`<p>${token.raw}</p>` : token.raw;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "link":
      return link(token.href, nodes(token.tokens, { ...inside, cite: undefined }));
    case "image":
      return link(token.href, token.text || token.href);
    case "escape":
      return token.text;
    default:
      return token.raw;
  }
}

const box = (item) => (item.task ? (item.checked ? "☑ " : "☐ ") : null);

// A heading in a message is below those of the page.
const heading = (level, inside) => h(level < 2 ? "h3" : level < 4 ? "h4" : "h5", null, inside);

// A link leads to another site over http or https, or is text.
export function link(address, inside) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return inside;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return inside;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer nofollow" title=${url.href}>${inside}</a>`;
}

const entities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };

// plain is text with the commonest entities of HTML as what they stand for, and markers [n] as citations.
function plain(token, o) {
  const text = token.text.replace(/&(#39|[a-z]{2,4});/g, (whole, name) => entities[name] ?? whole);
  if (!o.cite) return text;
  return text.split(/(\[\d{1,3}\])/).map((piece, i) => (i % 2 ? (o.cite(Number(piece.slice(1, -1))) ?? piece) : piece));
}
