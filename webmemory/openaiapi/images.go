package openaiapi

import (
	"cmp"
	"slices"

	"mneme/apiserver/api"
	"mneme/memory"
)

// images are the references of a message's images; none if they cannot be taken.
func (m ChatMessage) images() []memory.Image {
	images, err := api.CheckImages(m.Content.Images, nil)
	if err != nil {
		return nil
	}
	return images
}

// earlierImages are those of the user's messages before the last one, the oldest first: as many of the newest ones
// as fit beside those of the last one. What cannot be taken is left out.
func (c *call) earlierImages() []string {
	var urls []string
	own := c.last().Content.Images
	read, err := memory.ReadImages(own)
	if err != nil {
		return nil
	}
	size := 0
	for _, image := range read {
		size += image.Bytes
	}
	defer func() { slices.Reverse(urls) }()
	for i, m := range slices.Backward(c.dialog) {
		if m.Role != memory.RoleUser || i == len(c.dialog)-1 {
			continue
		}
		for _, url := range slices.Backward(m.Content.Images) {
			if slices.Contains(urls, url) || slices.Contains(own, url) {
				continue
			}
			read, err := memory.ReadImages([]string{url})
			if err != nil {
				continue
			}
			size += read[0].Bytes
			if size > memory.MaxAllImages || len(own)+len(urls) == memory.MaxImages {
				return urls
			}
			urls = append(urls, url)
		}
	}
	return urls
}

// sight is what a message of the user is known by: its text, without the lines of its files, which clients may leave
// out of what they send again; of one that is no more than files, those lines; or the images of one that has no text.
func sight(text string, images []memory.Image) string {
	if text = cmp.Or(normal(fileLine.ReplaceAllString(text, "")), normal(text)); text != "" || len(images) == 0 {
		return text
	}
	refs := ""
	for _, m := range images {
		refs += " " + m.URL + m.SHA256
	}
	return "images" + refs
}
