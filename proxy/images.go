package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// imagePart is the type of an image among the parts of a chat message.
const imagePart = "image_url"

// seen refuses a request with an image in the newest message of the user, if the model is known to take none: another
// error, or an answer to half of the message, would be all that comes of it. What stands in earlier messages is the
// vendor's to judge.
func (x said) seen() (said, error) {
	if !x.sees().NoImages || x.endpoint.counts || !showsImage(x.outline) {
		return x, nil
	}
	return x, wire.Failure{Status: http.StatusBadRequest, Code: string(reasonImages), Param: "messages",
		Message: fmt.Sprintf("the model %.200s of backend %q takes text only, and the newest message has an image: send "+
			"the text alone, or use a model that takes images", x.model, x.backend.name)}
}

// sees is the profile, with what holds for a kind of backend whatever the model.
func (x said) sees() sanitize.Profile {
	p := x.known.profile
	p.NoImages = p.NoImages || x.backend.config.Kind == KindOffline || x.backend.config.Kind == KindCopilot
	return p
}

// showsImage reports whether the newest message of the user shows an image beside results of tools.
func showsImage(o *wire.Outline) bool {
	at, _ := o.NewestUser()
	return at >= 0 && slices.ContainsFunc(o.Messages[at].Blocks, func(b wire.BlockOutline) bool {
		return b.Type == wire.ImageBlock || b.Type == imagePart
	})
}

// imageWords are those of refusals because a model takes no images, in lower case. Complaints about an
// image as such, its size or its format, have others.
var imageWords = regexp.MustCompile(`image_not_supported|only supported by certain models|unknown variant .?image|` +
	`not a (multi-?modal|vision)|(not|n't) (currently )?(support|accept|take|handle)s?\b[^.]{0,40}\b(images?|image_url|` +
	`vision|multi-?modal)\b|\b(images?|image_url|vision)( (inputs?|content|parts?|urls?|modality))*( is| are)? ?` +
	`(not|n't) (currently )?(supported|enabled|available|allowed|accepted)|support image input|data required for image input|` +
	`at most 0 image|text[- ]only|input should be 'text'|取值范围 \['text'\]|content\W[^.]{0,20}must be a string`)

// refusesImages reports whether an error says that the model takes no images, which the request has.
func (a *attempt) refusesImages(f wire.Failure) bool {
	has := bytes.Contains(a.doc.Body, []byte(`"`+imagePart+`"`)) ||
		bytes.Contains(a.doc.Body, []byte(`"`+wire.ImageBlock+`"`))
	return has && imageWords.MatchString(strings.ToLower(f.Code+" "+f.Message))
}
