package loader

import (
	"archive/zip"
	"bytes"
	"mime"
	"slices"
	"strings"
)

// format is a type of file and what reads it.
type format struct {
	label      string // "the file cannot be read as …"
	extensions []string
	types      []string // MIME
	into       func(*builder, file) error
}

// Labels that readers use themselves.
const (
	labelPDF    = "PDF"
	labelHTML   = "HTML"
	labelWord   = "a Word document"
	labelSlides = "a PowerPoint presentation"
	labelSheets = "an Excel workbook"
	labelOpen   = "an OpenDocument file"
	labelBook   = "an e-book"
	labelRTF    = "an RTF document"
	labelMail   = "an e-mail"
	labelCSV    = "CSV"
	labelJSON   = "JSON"
)

// The formats. Their readers are in the files of their names.
var (
	plainText = &format{"text", []string{".txt", ".text", ".log"}, nil, readText}
	markdown  = &format{"Markdown", []string{".md", ".markdown"}, []string{"text/markdown", "text/x-markdown"},
		readMarkdown}
	htmlPage = &format{labelHTML, []string{".html", ".htm", ".xhtml"}, []string{"text/html", "application/xhtml+xml"},
		readHTML}
	pdfFile  = &format{labelPDF, []string{".pdf"}, []string{"application/pdf", "application/x-pdf"}, readPDF}
	wordFile = &format{labelWord, []string{".docx", ".docm", ".dotx"},
		[]string{"application/vnd.openxmlformats-officedocument.wordprocessingml.document"}, readWord}
	slidesFile = &format{labelSlides, []string{".pptx", ".pptm", ".ppsx", ".potx"}, []string{
		"application/vnd.openxmlformats-officedocument.presentationml.presentation",
	}, readSlides}
	sheetsFile = &format{labelSheets, []string{".xlsx", ".xlsm", ".xltx"}, []string{
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	}, readSheets}
	openFile = &format{labelOpen, []string{".odt", ".ods", ".odp", ".ott", ".ots", ".otp"},
		[]string{"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.spreadsheet",
			"application/vnd.oasis.opendocument.presentation"}, readOpenDocument}
	bookFile   = &format{labelBook, []string{".epub"}, []string{"application/epub+zip"}, readBook}
	rtfFile    = &format{labelRTF, []string{".rtf"}, []string{"application/rtf", "text/rtf"}, readRTF}
	mailFile   = &format{labelMail, []string{".eml"}, []string{"message/rfc822"}, nil}
	webArchive = &format{labelMail, []string{".mht", ".mhtml"},
		[]string{"multipart/related", "application/x-mimearchive"}, nil}
	notebook  = &format{"a notebook", []string{".ipynb"}, []string{"application/x-ipynb+json"}, readNotebook}
	csvFile   = &format{labelCSV, []string{".csv", ".tsv"}, []string{"text/csv", "text/tab-separated-values"}, readCSV}
	jsonFile  = &format{labelJSON, []string{".json"}, []string{"application/json", "text/json"}, readJSON}
	jsonLines = &format{"JSON lines", []string{".jsonl", ".ndjson"},
		[]string{"application/x-ndjson", "application/jsonl", "application/x-jsonlines", "application/jsonlines"}, readJSON}

	formats = []*format{plainText, markdown, htmlPage, pdfFile, wordFile, slidesFile, sheetsFile, openFile, bookFile,
		rtfFile, mailFile, webArchive, notebook, csvFile, jsonFile, jsonLines}

	// binary are the formats that their first bytes prove: a file named as one that has others is none.
	binary = []*format{pdfFile, wordFile, slidesFile, sheetsFile, openFile, bookFile, rtfFile}
)

func formatByExtension(extension string) *format {
	for _, f := range formats {
		if slices.Contains(f.extensions, extension) {
			return f
		}
	}
	return nil
}

// format finds out what the file is. The first bytes of a binary format decide
// alone; then what the caller says, then the extension, then the look of the text.
func (f file) format() (*format, error) {
	if len(f.data) == 0 {
		return nil, refuse(Empty, "the file is empty")
	}
	if match, err := magic(f.data); match != nil || err != nil {
		return match, err
	}
	declared := f.declaredFormat()
	isBinary := slices.Contains(binary, declared)
	if isBinary || declared == plainText || declared == nil {
		// A web server's error page often has the name of what was asked for.
		if looksLikeHTML(f.data) {
			return htmlPage, nil
		}
	}
	switch {
	case isBinary:
		return nil, refuse(Damaged, "the file is damaged: it is named as %s and is none", article(declared.label))
	case declared == nil:
		if start := bytes.TrimLeft(f.data[:min(len(f.data), 1024)], "\ufeff \t\r\n"); len(start) > 0 &&
			(start[0] == '{' || start[0] == '[') && looksLikeJSON(f.data) {
			return jsonFile, nil
		}
		return plainText, nil
	}
	return declared, nil
}

func article(label string) string {
	if strings.HasPrefix(label, "a ") || strings.HasPrefix(label, "an ") {
		return label
	}
	return "a " + label
}

// declaredFormat is the format by MIME type and name; nil if they say nothing.
func (f file) declaredFormat() *format {
	kind, _, _ := mime.ParseMediaType(f.contentType)
	for _, candidate := range formats {
		if slices.Contains(candidate.types, kind) {
			return candidate
		}
	}
	match := formatByExtension(extensionOf(f.name))
	if match == nil && kind == "text/plain" {
		return plainText
	}
	return match
}

// charset is the encoding that the caller names, "" for none.
func (f file) charset() string {
	_, parameters, _ := mime.ParseMediaType(f.contentType)
	return parameters["charset"]
}

// foreign are binary files that are not read, by their first bytes.
var foreign = []struct{ start, label string }{
	{"\x89PNG", "a picture"}, {"\xff\xd8\xff", "a picture"}, {"GIF8", "a picture"}, {"II*\x00", "a picture"},
	{"MM\x00*", "a picture"},
	{"\x1f\x8b", "a compressed file"}, {"BZh", "a compressed file"}, {"\xfd7zXZ", "a compressed file"},
	{"(\xb5/\xfd", "a compressed file"},
	{"7z\xbc\xaf", "an archive"}, {"Rar!", "an archive"},
	{"\x7fELF", "a program"}, {"MZ\x90", "a program"}, {"\xca\xfe\xba\xbe", "a program"},
	{"OggS", "a sound or film"}, {"ID3", "a sound or film"}, {"fLaC", "a sound or film"},
	{"\x1aE\xdf\xa3", "a sound or film"},
	{"SQLite format 3", "a database"}, {"%!PS", "a PostScript file"},
}

// magic is the format that the first bytes prove; nil if they prove none.
func magic(data []byte) (*format, error) {
	head := data[:min(len(data), 1024)]
	switch {
	case bytes.Contains(head, []byte("%PDF-")):
		return pdfFile, nil
	case bytes.HasPrefix(head, []byte("{\\rtf")):
		return rtfFile, nil
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return packed(data)
	case bytes.HasPrefix(head, []byte("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")):
		// The container of old Office files, and of new ones behind a password.
		if bytes.Contains(data, utf16LE("EncryptedPackage")) {
			return nil, refuse(Encrypted, "the document is encrypted: save it without a password")
		}
		return nil,
			refuse(Unsupported,
				"the file is an old Office document (.doc, .xls, .ppt), which is not read here: save it as .docx, .xlsx, .pptx "+
					"or PDF")
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.start)) {
			return nil, refuse(Unsupported, "the file is %s, which is not read here", f.label)
		}
	}
	return nil, nil
}

func utf16LE(ascii string) []byte {
	var b []byte
	for _, c := range []byte(ascii) {
		b = append(b, c, 0)
	}
	return b
}

// packed is the format of a ZIP archive, by the names of what is in it. OpenDocument
// and EPUB say it in a first entry of their own.
func packed(data []byte) (*format, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, damaged("a ZIP archive or document in one", err)
	}
	for _, entry := range z.File {
		key := partKey(entry.Name)
		for _, candidate := range []struct {
			start string
			f     *format
		}{{"word/", wordFile}, {"ppt/", slidesFile}, {"xl/", sheetsFile}, {"content.xml", openFile},
			{"meta-inf/container.xml", bookFile}} {
			if strings.HasPrefix(key, candidate.start) {
				return candidate.f, nil
			}
		}
	}
	return nil, refuse(Unsupported, "the file is a ZIP archive, which is not read here")
}

// looksLikeHTML says whether a text starts as a web page does.
func looksLikeHTML(data []byte) bool {
	start := strings.ToLower(string(bytes.TrimLeft(data[:min(len(data), 1024)], "\ufeff \t\r\n")))
	return slices.ContainsFunc([]string{"<!doctype html", "<html", "<head>", "<body"}, func(tag string) bool {
		return strings.HasPrefix(start, tag)
	})
}
