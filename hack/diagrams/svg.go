package main

import (
	"bytes"
	"fmt"
	"html"
)

// The colours of lines, text, data and the ground.
const (
	ink    = "#335555"
	text   = "#112222"
	data   = "#b45309"
	paper  = "#fcfcfa"
	shade  = "#f1f6f5"
	weight = "1.5"
)

// canvas collects the elements of one SVG.
type canvas struct{ bytes.Buffer }

func (c *canvas) open(width, height int, title string) {
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(c, "<title>%s</title>\n<defs>\n", html.EscapeString(title))
	for _, m := range []struct{ id, color string }{{"call", ink}, {"data", data}} {
		fmt.Fprintf(c, `<marker id="%s" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="11" orient="auto"><path d="M0 0 10 5 0 10z" fill="%s"/></marker>`+"\n", m.id, m.color)
	}
	fmt.Fprintf(c, "</defs>\n"+`<rect width="%d" height="%d" fill="%s"/>`+"\n", width, height, paper)
}

func (c *canvas) close() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

func (c *canvas) box(x, y, w, h int, fill string) {
	fmt.Fprintf(c, `<rect x="%d" y="%d" width="%d" height="%d" rx="7" fill="%s" stroke="%s" stroke-width="%s"/>`+"\n", x, y, w, h, fill, ink, weight)
}

// arrow draws a line of kind "call" or "data".
func (c *canvas) arrow(x1, y1, x2, y2 int, kind string) {
	color, width := ink, weight
	if kind == "data" {
		color, width = data, "3"
	}
	fmt.Fprintf(c, `<path d="M%d %dL%d %d" fill="none" stroke="%s" stroke-width="%s" marker-end="url(#%s)"/>`+"\n", x1, y1, x2, y2, color, width, kind)
}

// write draws a line of text. anchor is start, middle or end; style holds further attributes.
func (c *canvas) write(x, y int, anchor, style, s string) {
	if style != "" {
		style = " " + style
	}
	fmt.Fprintf(c, `<text x="%d" y="%d" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, text, style, html.EscapeString(s))
}

// lineDown is the dashed line of a lane.
func lineDown(x, y1, y2 int) string {
	return fmt.Sprintf(`<path d="M%d %dV%d" stroke="%s" stroke-dasharray="3 4"/>`+"\n", x, y1, y2, ink)
}
