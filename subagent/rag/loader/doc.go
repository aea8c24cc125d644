// Package loader turns files into documents: text, Markdown, HTML, PDF, Office
// documents, e-books, e-mail, CSV and JSON become one text with its sections, tables
// and code blocks, ready to be cut into passages. What is no text, as pictures, and
// what its readers do not see, as hidden text, is left out and counted.
//
// The files come from strangers. Whatever they hold, Load returns: with a
// document, or with a refusal that says why in one sentence and a code. Limits
// bound the bytes, the time and the depth; a reader that fails on a broken file
// takes nothing else down. What a reader cannot bound itself is bounded before it
// is called: Markdown is parsed in pieces, and the innermost tags of HTML that is
// too deep are dropped.
//
// All readers share three mechanisms: flow renders the marks of runs of text, table fills the cells
// that others span, and numbering counts the items of lists. Markdown and notebooks are read as HTML.
//
// A file goes one way: Loader.reader chooses what reads it by its first bytes, then by what
// the caller says, then by its name; the reader writes blocks into a builder, which
// keeps them within the limits; load checks that what came out is legible. Readers of office
// formats see their XML as a stream (archive.walk), since an unpacked part may be far larger
// than the file.
//
// Extracted text is UTF-8 with line feeds, without control and invisible
// characters; blank lines stand between its blocks.
package loader
