package evaluate

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// VectorFile keeps vectors of texts between runs, so that an endpoint is asked, and
// paid, once. Its first line names the endpoint and the model; behind it stand records
// of a text's SHA-256, the count of numbers, and these, little-endian. A record that a
// killed run left half written is cut off.
type VectorFile struct {
	file    *os.File
	vectors map[[sha256.Size]byte][]float32
}

// vectorHead is the first line.
type vectorHead struct {
	Space string `json:"mneme_vectors_of"`
}

// maxVector bounds the numbers of a vector that is believed.
const maxVector = 1 << 16

// OpenVectors opens or makes the file at path for the vectors of a space, which names
// the endpoint, the model and the dimensions.
func OpenVectors(path, space string) (*VectorFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f := &VectorFile{file: file, vectors: map[[sha256.Size]byte][]float32{}}
	if err := f.read(space); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func (f *VectorFile) read(space string) error {
	in := bufio.NewReader(f.file)
	first, err := in.ReadBytes('\n')
	if len(first) == 0 && errors.Is(err, io.EOF) {
		line, err := json.Marshal(vectorHead{space})
		if err == nil {
			_, err = f.file.Write(append(line, '\n'))
		}
		return err
	}
	var head vectorHead
	if err != nil || json.Unmarshal(first, &head) != nil || head.Space == "" {
		return errors.New("this is no file of vectors; name another one, or a new one")
	}
	if head.Space != space {
		return fmt.Errorf("it has vectors of %s, not of %s: name another file for those", head.Space, space)
	}
	whole := int64(len(first))
	for {
		var record struct {
			Hash  [sha256.Size]byte
			Count uint32
		}
		if err := binary.Read(in, binary.LittleEndian, &record); err != nil || record.Count > maxVector {
			break
		}
		v := make([]float32, record.Count)
		if err := binary.Read(in, binary.LittleEndian, v); err != nil {
			break
		}
		f.vectors[record.Hash] = v
		whole += sha256.Size + 4 + 4*int64(record.Count)
	}
	if err := f.file.Truncate(whole); err != nil {
		return err
	}
	_, err = f.file.Seek(whole, io.SeekStart)
	return err
}

// get is a text's vector, nil if there is none.
func (f *VectorFile) get(text string) []float32 {
	if f == nil {
		return nil
	}
	return f.vectors[sha256.Sum256([]byte(text))]
}

// put adds the vector of a text.
func (f *VectorFile) put(text string, v []float32) error {
	if f == nil {
		return nil
	}
	hash := sha256.Sum256([]byte(text))
	record := binary.LittleEndian.AppendUint32(hash[:], uint32(len(v)))
	for _, x := range v {
		record = binary.LittleEndian.AppendUint32(record, math.Float32bits(x))
	}
	if _, err := f.file.Write(record); err != nil {
		return fmt.Errorf("keeping a vector: %w", err)
	}
	f.vectors[hash] = v
	return nil
}

// Close closes the file; nil has none.
func (f *VectorFile) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}
