package server

import "sync"

// workers are goroutines for calls that may block: at most max, created on demand. The last one to
// become idle is woken first. submit never waits and allocates nothing: calls link into a queue,
// and transports bound their number.
type workers struct {
	mu          sync.Mutex
	first, last *op
	queued      int
	idle        *worker
	count, max  int
	resting     int
	closed      bool
	done        sync.WaitGroup
}

type worker struct {
	next *worker
	wake chan *op // nil: exit
}

func (w *workers) init(limit int) { w.max = limit }

func (w *workers) submit(o *op) {
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		o.drop()
		return
	case w.idle != nil:
		k := w.idle
		w.idle, k.next = k.next, nil
		w.resting--
		w.mu.Unlock()
		k.wake <- o
		return
	case w.count < w.max:
		w.count++
		w.done.Add(1)
		go w.work(&worker{wake: make(chan *op, 1)}, o)
	default:
		o.next = nil
		if w.last == nil {
			w.first = o
		} else {
			w.last.next = o
		}
		w.last = o
		w.queued++
	}
	w.mu.Unlock()
}

func (w *workers) work(k *worker, o *op) {
	defer w.done.Done()
	for o != nil {
		o.run(o)
		o = w.another(k)
		if o == nil {
			o = <-k.wake
		}
	}
}

// another returns a waiting call, or makes the worker idle.
func (w *workers) another(k *worker) *op {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.first; o != nil {
		if w.first = o.next; w.first == nil {
			w.last = nil
		}
		o.next = nil
		w.queued--
		return o
	}
	if w.closed {
		k.wake <- nil
		return nil
	}
	k.next, w.idle = w.idle, k
	w.resting++
	return nil
}

func (w *workers) load() (queued, busy int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued, w.count - w.resting
}

// close waits until all calls have run.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	for k := w.idle; k != nil; k = k.next {
		k.wake <- nil
	}
	w.idle, w.resting = nil, 0
	w.mu.Unlock()
	w.done.Wait()
}
