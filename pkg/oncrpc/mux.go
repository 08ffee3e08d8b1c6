package oncrpc

import "fmt"

// Mux dispatches calls to the handlers of their programs, and answers PROG_UNAVAIL and
// PROG_MISMATCH itself. Call Handle before the first call only. The zero value serves nothing.
type Mux struct{ programs []muxProgram }

type muxProgram struct {
	program   uint32
	low, high uint32 // of all ranges together
	ranges    []muxRange
}

type muxRange struct {
	low, high uint32
	handler   Handler
}

// Handle registers h for the versions low to high of a program. It panics if ranges of one program
// overlap.
func (m *Mux) Handle(program, low, high uint32, h Handler) {
	if low > high {
		panic(fmt.Sprintf("oncrpc: program %d: versions %d to %d", program, low, high))
	}
	p := m.find(program)
	if p == nil {
		m.programs = append(m.programs, muxProgram{program: program, low: low, high: high})
		p = &m.programs[len(m.programs)-1]
	}
	for _, r := range p.ranges {
		if low <= r.high && r.low <= high {
			panic(fmt.Sprintf("oncrpc: program %d: versions %d to %d overlap %d to %d", program, low, high, r.low, r.high))
		}
	}
	p.low, p.high = min(p.low, low), max(p.high, high)
	p.ranges = append(p.ranges, muxRange{low, high, h})
}

func (m *Mux) find(program uint32) *muxProgram {
	for i := range m.programs {
		if m.programs[i].program == program {
			return &m.programs[i]
		}
	}
	return nil
}

// ServeRPC implements [Handler].
func (m *Mux) ServeRPC(c *Call) {
	p := m.find(c.Program)
	if p == nil {
		c.ReplyAccept(ProgUnavail)
		return
	}
	for i := range p.ranges {
		if r := &p.ranges[i]; r.low <= c.Version && c.Version <= r.high {
			r.handler.ServeRPC(c)
			return
		}
	}
	c.ReplyMismatch(p.low, p.high)
}
