package estimator

import (
	"bufio"
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

// imageSize reads the size of a PNG, JPEG, GIF or WebP from its header, without
// its pixels: a hostile image costs no memory. It is zero for anything else,
// whatever the request calls it.
func imageSize(r io.Reader) pixels {
	head := bufio.NewReaderSize(r, 4<<10)
	magic, err := head.Peek(12)
	if err != nil {
		return pixels{}
	}
	var decode func(io.Reader) (image.Config, error)
	switch {
	case bytes.HasPrefix(magic, []byte("\x89PNG\r\n\x1a\n")):
		decode = png.DecodeConfig
	case bytes.HasPrefix(magic, []byte("\xff\xd8\xff")):
		decode = jpeg.DecodeConfig
	case bytes.HasPrefix(magic, []byte("GIF8")):
		decode = gif.DecodeConfig
	case bytes.HasPrefix(magic, []byte("RIFF")) && bytes.Equal(magic[8:], []byte("WEBP")):
		decode = webp.DecodeConfig
	default:
		return pixels{}
	}
	config, err := decode(head)
	if err != nil {
		return pixels{}
	}
	return pixels{int64(config.Width), int64(config.Height)}
}
