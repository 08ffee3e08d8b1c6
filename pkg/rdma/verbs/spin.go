package verbs

// leastSpin is the number of repeated polls after a long time without success, unless spinning is
// off.
const leastSpin = 8

// nextSpin returns the number of repeated polls of an empty queue for the next time. It was up to
// now, of at most most; spun of them were needed for found completions.
func nextSpin(now, most, spun, found int) int {
	switch {
	case found > 0 && spun > 0:
		now *= 2
	case found == 0:
		now /= 2
	}
	return min(max(now, leastSpin), most)
}
