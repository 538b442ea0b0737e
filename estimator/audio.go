package estimator

import (
	"encoding/binary"
	"io"
	"strings"

	"github.com/budgetd/budgetd/quota"
)

// audioRate is the input tokens of ten seconds of sound, and the name of its
// source.
//
// OpenAI: the guide "Realtime costs": one token for 100 ms of input. Gemini:
// the guide "Audio understanding": 32 tokens a second.
func audioRate(m Model) (perTenSeconds int64, method string) {
	switch {
	case isOpenAI(m):
		return 100, "openai-audio"
	case strings.Contains(strings.ToLower(m.ID), "gemini"):
		return 320, "gemini-audio"
	}
	return 0, ""
}

// Bytes of one second of sound. Compressed formats: 320 kbit/s, the most that
// MP3 allows, 128 kbit/s, the usual one, and 6 kbit/s, the least that Opus is
// specified for (MP3 and AAC have 8). FLAC can press silence further.
const (
	mostBytesASecond  = 40_000
	usualBytesASecond = 16_000
	leastBytesASecond = 750
	flacBytesASecond  = 125
)

// audio counts one recording by its seconds: of WAV as its header says, else
// between what its bytes hold at the highest and the lowest rate.
func (t *tally) audio(field, format, data string) error {
	if t.count == nil {
		return nil
	}
	rate, method := audioRate(t.model)
	if rate == 0 {
		return refusePart(field, "audio for this model")
	}
	if data == "" {
		return t.stored(field, "audio that the request only names", KindAudio)
	}
	size := bytesOf(data)
	most, usual, least := int64(mostBytesASecond), int64(usualBytesASecond), int64(leastBytesASecond)
	switch {
	case strings.Contains(format, "flac"):
		least = flacBytesASecond
	case strings.Contains(format, "pcm16"): // 24 kHz, 16 bits, one channel
		most, usual, least = 48_000, 48_000, 48_000
	default:
		if r := t.look(data, maxWAVHeader); r != nil {
			if n := wavBytesASecond(r); n > 0 {
				most, usual, least = n, n, n
			}
		}
	}
	t.add(KindAudio, 1, Figures{
		Floor:    quota.Tokens(max(0, size-maxWAVHeader) * rate / (10 * most)),
		Expected: quota.Tokens(ceilDiv(size*rate, 10*usual)),
		Ceiling:  quota.Tokens(ceilDiv(size*rate, 10*least)),
	}, method)
	return nil
}

// maxWAVHeader bounds how far into a WAV its format is looked for.
const maxWAVHeader = 4 << 10

// wavBytesASecond reads from a WAV's format chunk how many bytes make a second,
// or 0: it is no WAV, or its samples are compressed. The chunk's own field of
// that name is not trusted; decoders go by rate, channels and bits.
func wavBytesASecond(r io.Reader) int64 {
	var riff [12]byte
	if _, err := io.ReadFull(r, riff[:]); err != nil || string(riff[:4]) != "RIFF" || string(riff[8:]) != "WAVE" {
		return 0
	}
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return 0
		}
		size := int64(binary.LittleEndian.Uint32(head[4:]))
		if string(head[:4]) != "fmt " {
			if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
				return 0
			}
			continue
		}
		var format [16]byte
		if _, err := io.ReadFull(r, format[:]); err != nil {
			return 0
		}
		const pcm, float, extensible = 1, 3, 0xfffe
		switch binary.LittleEndian.Uint16(format[:]) {
		case pcm, float, extensible:
		default:
			return 0
		}
		channels := int64(binary.LittleEndian.Uint16(format[2:]))
		samples := int64(binary.LittleEndian.Uint32(format[4:]))
		bits := int64(binary.LittleEndian.Uint16(format[14:]))
		return channels * samples * bits / 8
	}
}
