// Command oracle asks the Kubernetes scheduler's own plugins where pods would go. One JSON request a line in, one JSON
// answer a line out, in order; README.md has the fields. State is kept between requests until the next load.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
)

const (
	lineBytesMax = 1 << 30
	// Requests are small and many: collecting seldom is worth the memory.
	collectAtPercent = 400
)

// request is done in the order of its fields: load, assume, remove, place, admit.
type request struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Load   *world          `json:"load,omitempty"`
	Assume []*v1.Pod       `json:"assume,omitempty"`
	Remove []string        `json:"remove,omitempty"`
	Place  []placement     `json:"place,omitempty"`
	Admit  []*v1.Pod       `json:"admit,omitempty"`
}

type answer struct {
	ID       json.RawMessage `json:"id,omitempty"`
	Placed   []placed        `json:"placed,omitempty"`
	Admitted []*v1.Pod       `json:"admitted,omitempty"`
	Error    string          `json:"error,omitempty"`
}

func main() {
	debug.SetGCPercent(collectAtPercent)
	oracle, err := newOracle()
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 1<<20), lineBytesMax)
	out := bufio.NewWriterSize(os.Stdout, 1<<16)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var asked request
		said := answer{}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			said.Error = "request: " + err.Error()
		} else {
			said = oracle.do(&asked)
		}
		if err := encoder.Encode(said); err != nil {
			os.Exit(1)
		}
		if err := out.Flush(); err != nil {
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func (o *oracle) do(asked *request) answer {
	said := answer{ID: asked.ID}
	if err := o.doAll(asked, &said); err != nil {
		said.Error = err.Error()
	}
	return said
}

func (o *oracle) doAll(asked *request, said *answer) error {
	if asked.Load != nil {
		if err := o.load(asked.Load); err != nil {
			return err
		}
	}
	for _, pod := range asked.Assume {
		if err := o.assume(pod); err != nil {
			return err
		}
	}
	for _, key := range asked.Remove {
		if err := o.remove(key); err != nil {
			return err
		}
	}
	for i := range asked.Place {
		result, err := o.place(&asked.Place[i])
		if err != nil {
			result.Error = err.Error()
		}
		said.Placed = append(said.Placed, result)
	}
	for _, pod := range asked.Admit {
		admitted, err := o.admit(pod)
		if err != nil {
			return err
		}
		said.Admitted = append(said.Admitted, admitted)
	}
	return nil
}
