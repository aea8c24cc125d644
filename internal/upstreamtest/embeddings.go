package upstreamtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// embeddingSize is the number of dimensions of an embedding.
const embeddingSize = 64

// embed returns a vector of length 1. Texts with the same words have near vectors.
func embed(text string) []float64 {
	v := make([]float64, embeddingSize)
	v[0] = 1 // so that no text has the zero vector
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		h := sha256.Sum256([]byte(word))
		v[h[0]%embeddingSize]++
		v[h[1]%embeddingSize]--
	}
	length := 0.0
	for _, f := range v {
		length += f * f
	}
	for i := range v {
		v[i] /= math.Sqrt(length)
	}
	return v
}

// inputs returns the texts to embed, or none if the input is something else.
func (x *exchange) inputs() (texts []string) {
	if s, ok := x.body.text("input"); ok {
		return []string{s}
	}
	if json.Unmarshal(x.body["input"], &texts) != nil {
		return nil
	}
	return texts
}

// embeddings returns the answer to an embeddings request.
func (x *exchange) embeddings() []byte {
	var data []object
	size := 0
	for i, s := range x.inputs() {
		size += len(s)
		data = append(data, obj("object", "embedding", "index", i, "embedding", writeVector(embed(s),
			x.body.str("encoding_format"))))
	}
	size = size/4 + 1
	return obj("object", "list", "data", array(data), "model", x.Model,
		"usage", obj("prompt_tokens", size, "total_tokens", size))
}

// writeVector writes v as numbers or, for the format base64, as 32-bit floats.
func writeVector(v []float64, format string) []byte {
	if format == "base64" {
		var b []byte
		for _, f := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
		}
		return quoted(base64.StdEncoding.EncodeToString(b))
	}
	numbers := make([][]byte, len(v))
	for i, f := range v {
		numbers[i] = strconv.AppendFloat(nil, f, 'g', -1, 32)
	}
	return array(numbers)
}
