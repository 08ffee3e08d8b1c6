package server

import "sync"

// workers are goroutines for calls that may block: at most max, created on demand. The last one to
// become idle is woken first. submit never waits and allocates nothing: calls link into a queue,
// and transports bound their number.
type workers struct {
	mu          sync.Mutex
	first, last *task
	queued      int
	idle        *worker
	count, max  int
	resting     int
	closed      bool
	done        sync.WaitGroup
}

type worker struct {
	next *worker
	wake chan *task // nil: exit
}

// task is the part of a call in progress that workers need.
type task struct {
	run  func() // answers the call
	drop func() // ends it without an answer
	next *task  // in the queue
}

func (w *workers) init(limit int) { w.max = limit }

func (w *workers) submit(t *task) {
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		t.drop()
		return
	case w.idle != nil:
		k := w.idle
		w.idle, k.next = k.next, nil
		w.resting--
		w.mu.Unlock()
		k.wake <- t
		return
	case w.count < w.max:
		w.count++
		w.done.Add(1)
		go w.work(&worker{wake: make(chan *task, 1)}, t)
	default:
		t.next = nil
		if w.last == nil {
			w.first = t
		} else {
			w.last.next = t
		}
		w.last = t
		w.queued++
	}
	w.mu.Unlock()
}

func (w *workers) work(k *worker, t *task) {
	defer w.done.Done()
	for t != nil {
		t.run()
		t = w.another(k)
		if t == nil {
			t = <-k.wake
		}
	}
}

// another returns a waiting call, or makes the worker idle.
func (w *workers) another(k *worker) *task {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.first; t != nil {
		if w.first = t.next; w.first == nil {
			w.last = nil
		}
		t.next = nil
		w.queued--
		return t
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
