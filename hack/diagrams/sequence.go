package main

const (
	laneTop   = 54
	stepSpace = 34
	noteSpace = 20
)

// sequence is a diagram of messages between lanes, from top to bottom.
type sequence struct {
	title string
	lanes []lane
	steps []step
}

// lane is a participant, with a package or place below its name.
type lane struct{ name, place string }

// step is a message from one lane to another, or, where both are the same, work in a lane. Lanes
// count from 0. data marks bulk data.
type step struct {
	from, to int
	text     string
	more     string // second line of work in a lane
	data     bool
}

func (s sequence) draw() []byte {
	const width = 960
	gap := width / len(s.lanes)
	x := func(lane int) int { return gap/2 + lane*gap }
	height := laneTop + 24
	for _, st := range s.steps {
		height += s.space(st)
	}
	var c canvas
	c.open(width, height, s.title)
	for i, l := range s.lanes {
		c.box(x(i)-gap/2+10, 10, gap-20, laneTop-10, shade)
		c.write(x(i), 28, "middle", `font-weight="bold"`, l.name)
		c.write(x(i), 45, "middle", `font-size="12"`, l.place)
		c.WriteString(lineDown(x(i), laneTop, height-10))
	}
	y := laneTop + 10
	for _, st := range s.steps {
		y += s.space(st)
		if st.from == st.to {
			s.work(&c, x(st.from), y, gap, st)
			continue
		}
		kind := "call"
		if st.data {
			kind = "data"
		}
		c.arrow(x(st.from), y, x(st.to), y, kind)
		c.write((x(st.from)+x(st.to))/2, y-7, "middle", `font-size="12" stroke="`+paper+`" stroke-width="4" paint-order="stroke"`, st.text)
	}
	return c.close()
}

func (s sequence) space(st step) int {
	if st.from == st.to && st.more != "" {
		return stepSpace + noteSpace
	}
	return stepSpace
}

// work draws a box of one or two lines that ends at y.
func (s sequence) work(c *canvas, x, y, gap int, st step) {
	h := 24
	if st.more != "" {
		h += 16
	}
	c.box(x-gap/2+6, y-h+6, gap-12, h, "#ffffff")
	c.write(x, y-h+22, "middle", `font-size="12"`, st.text)
	if st.more != "" {
		c.write(x, y-h+38, "middle", `font-size="12"`, st.more)
	}
}
