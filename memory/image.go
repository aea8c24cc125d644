package memory

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Bounds of the images that come with a message.
const (
	MaxImages     = 8
	MaxImage      = 5 << 20  // bytes of one
	MaxAllImages  = 20 << 20 // bytes of all
	maxImageURL   = 2048     // bytes of an address
	imageTypeList = "image/png, image/jpeg, image/gif or image/webp"
)

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// ErrImagesTooLarge is what errors of ReadImages are about images that are too many or too large.
var ErrImagesTooLarge = errors.New("too many images, or too large ones")

type imagesTooLarge struct{ error }

func (imagesTooLarge) Is(target error) bool { return target == ErrImagesTooLarge }

func tooLarge(format string, args ...any) error { return imagesTooLarge{fmt.Errorf(format, args...)} }

// Image is the reference by which a message keeps an image: its address, or what tells it from
// others. The image itself is never kept.
type Image struct {
	URL       string `json:"url,omitempty"`        // https
	SHA256    string `json:"sha256,omitempty"`     // of its bytes, in hexadecimal
	MediaType string `json:"media_type,omitempty"` // such as image/png
	Bytes     int    `json:"bytes,omitempty"`
}

// ReadImages gives the references of images, each the text of a data: URL in base64 or of an https
// address. The error says which of them cannot be taken, and why, in a clause.
func ReadImages(urls []string) ([]Image, error) {
	if len(urls) > MaxImages {
		return nil, tooLarge("there are %d, at most %d are taken", len(urls), MaxImages)
	}
	var images []Image
	size := 0
	for i, u := range urls {
		read, err := readImage(u)
		if err != nil {
			return nil, fmt.Errorf("number %d %w", i+1, err)
		}
		if size += read.Bytes; size > MaxAllImages {
			return nil, tooLarge("all together have more than %d bytes", MaxAllImages)
		}
		images = append(images, read)
	}
	return images, nil
}

func readImage(text string) (Image, error) {
	rest, isData := strings.CutPrefix(text, "data:")
	if !isData {
		return readImageURL(text)
	}
	kind, data, ok := strings.Cut(rest, ";base64,")
	switch {
	case !ok:
		return Image{}, errors.New("is a data: URL without ;base64, before its data")
	case !slices.Contains(imageTypes, kind):
		return Image{}, fmt.Errorf("is of the type %.40q, which is not taken: send %s", kind, imageTypeList)
	case len(data) > base64.StdEncoding.EncodedLen(MaxImage):
		return Image{}, tooLarge("has more than %d bytes", MaxImage)
	case strings.ContainsAny(data, "\r\n"): // which the decoder skips, and vendors refuse
		return Image{}, errors.New("has line breaks in its base64")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(data)
	if err != nil {
		return Image{}, errors.New("is not in base64 with its padding")
	}
	if is := http.DetectContentType(raw); is != kind {
		return Image{}, fmt.Errorf("says that it is %s, and its first bytes are not of that type", kind)
	}
	if len(raw) > MaxImage {
		return Image{}, tooLarge("has more than %d bytes", MaxImage)
	}
	sum := sha256.Sum256(raw)
	return Image{SHA256: hex.EncodeToString(sum[:]), MediaType: kind, Bytes: len(raw)}, nil
}

func readImageURL(text string) (Image, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
		return Image{}, errors.New("is neither a data: URL nor an https:// address without a password")
	case len(text) > maxImageURL:
		return Image{}, tooLarge("is an address of more than %d bytes", maxImageURL)
	}
	return Image{URL: text}, nil
}

// IsImageData says whether an image is given by its bytes, not by its address.
func IsImageData(url string) bool { return strings.HasPrefix(url, "data:") }

// line says in a message's text that the image was there. Of an address it leaves out the query,
// which may hold a signature.
func (m Image) line() string {
	if m.URL == "" {
		return "[image: " + m.MediaType + ", " + amount(m.Bytes) + "]"
	}
	u, err := url.Parse(m.URL)
	if err != nil {
		return "[image]"
	}
	return "[image: https://" + u.Host + u.EscapedPath() + "]"
}

func amount(bytes int) string {
	if bytes < 1000 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%d kB", (bytes+500)/1000)
}

func imageLines(images []Image) string {
	lines := make([]string, len(images))
	for i, m := range images {
		lines[i] = m.line()
	}
	return strings.Join(lines, "\n")
}

// WithImages is the text of a message that comes with images: behind it one line for each says that
// it was there. That is what models are shown of the message, in its own run and in later ones.
func WithImages(text string, images []Image) string {
	switch {
	case len(images) == 0:
		return text
	case text == "":
		return imageLines(images)
	}
	return text + "\n\n" + imageLines(images)
}

// WithoutImages is the text that WithImages made another one of.
func WithoutImages(text string, images []Image) string {
	if len(images) == 0 {
		return text
	}
	return strings.TrimSuffix(strings.TrimSuffix(text, imageLines(images)), "\n\n")
}
