package verbs

// leastSpin is how often an empty queue is polled again where that found nothing for long, if it is at all.
const leastSpin = 8

// nextSpin returns how often an empty queue is polled again the next time, if it was up to now times, of at most most: spun of them were
// needed to find found completions.
func nextSpin(now, most, spun, found int) int {
	switch {
	case found > 0 && spun > 0:
		now *= 2
	case found == 0:
		now /= 2
	}
	return min(max(now, leastSpin), most)
}
