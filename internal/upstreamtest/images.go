package upstreamtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The types of content that are images.
const (
	imagePart  = "image_url" // of chat completions
	imageBlock = "image"     // of the messages dialect
)

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// checkImagePart wants an address, or bytes of the type that they are said to be.
func checkImagePart(p members, at string) error {
	image, ok := p.object(imagePart)
	url, isText := image.text("url")
	if !ok || !isText {
		return fmt.Errorf("Invalid type for '%s.image_url': expected an object with a url.", at)
	}
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		kind, data, _ := strings.Cut(rest, ";base64,")
		return checkImageBytes(kind, data, at+".image_url.url")
	}
	if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") {
		return fmt.Errorf("Invalid '%s.image_url.url'. Expected a valid URL, but got a value with an invalid format.", at)
	}
	return nil
}

// checkImageBlock is checkImagePart for the messages dialect.
func checkImageBlock(b members, at string) error {
	source, ok := b.object("source")
	if !ok {
		return fmt.Errorf("%s.source: Input should be a valid dictionary", at)
	}
	switch url, _ := source.text("url"); source.kind() {
	case "base64":
		kind, _ := source.text("media_type")
		data, _ := source.text("data")
		return checkImageBytes(kind, data, at+".source.base64")
	case "url":
		if !strings.HasPrefix(url, "https://") {
			return fmt.Errorf("%s.source.url: Only HTTPS URLs are supported.", at)
		}
	}
	return nil
}

func checkImageBytes(kind, data, at string) error {
	raw, err := base64.StdEncoding.DecodeString(data)
	switch {
	case !slices.Contains(imageTypes, kind):
		return fmt.Errorf("%s.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", at)
	case err != nil || len(raw) == 0:
		return fmt.Errorf("%s.data: Invalid base64 data", at)
	case http.DetectContentType(raw) != kind:
		return fmt.Errorf("%s: Image does not match the provided media type %s", at, kind)
	}
	return nil
}

// imagesTaken refuses images where the vendor's models take none.
func imagesTaken(x *exchange) error {
	deepSeek := x.config.vendor() == DeepSeek
	for i, m := range x.messages {
		parts, _ := m.list("content")
		for j, p := range parts {
			switch {
			case p.kind() != imagePart:
			case deepSeek:
				return fmt.Errorf("Failed to deserialize the JSON body into the target type: messages[%d]: unknown variant "+
					"`image_url`, expected `text`", i)
			case x.config.Chat.NoImages:
				return fmt.Errorf("Invalid content type. image_url is only supported by certain models. "+
					"(messages.[%d].content.[%d].type)", i, j)
			}
		}
	}
	return nil
}
