package controllers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
)

// Intervals and limits of polls.
const (
	pollEvery   = 10 * time.Second
	pollSoon    = time.Second     // while the pod applies a plan
	pollPatient = 2 * time.Minute // limit on pollSoon
	pollTimeout = 3 * time.Second
	// pollLimit is the limit on a response, in bytes: enough for 1000 exports with 20 clients each.
	pollLimit = 16 << 20
	// minObjectSize is the least average size of a JSON object in a response, in bytes. It bounds
	// the memory of the decoded response.
	minObjectSize = 64
)

// PodStatusReconciler polls /status of each pod.
type PodStatusReconciler struct {
	client.Client
	states *stateStore
	http   http.Client
	limit  int64 // of a response, in bytes
}

func newPodStatusReconciler(c client.Client, b *stateStore) *PodStatusReconciler {
	return &PodStatusReconciler{Client: c, states: b, limit: pollLimit, http: http.Client{
		Timeout:   pollTimeout,
		Transport: &http.Transport{Proxy: nil, IdleConnTimeout: 2 * pollEvery, MaxIdleConnsPerHost: 1, ResponseHeaderTimeout: pollTimeout},
		// A pod must not direct the operator to other hosts.
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("want an answer, not a redirection") },
	}}
}

// Reconcile polls one pod.
func (r *PodStatusReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := r.Get(ctx, req.NamespacedName, &pod); err != nil {
		r.states.setPod(req.NamespacedName, nil)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !canPoll(&pod) {
		r.states.setPod(req.NamespacedName, nil)
		return ctrl.Result{}, nil // an event requests it again
	}
	// Any user may give a pod these labels, and serve any content.
	if err := r.Get(ctx, gatewayOf(&pod), &v1alpha1.NFSGateway{}); err != nil {
		r.states.setPod(req.NamespacedName, nil)
		return ctrl.Result{RequeueAfter: pollSoon}, client.IgnoreNotFound(err)
	}
	p, before := &podStatus{gateway: gatewayOf(&pod), uid: pod.UID}, r.states.podStatus(&pod)
	if before == nil {
		before = &podStatus{}
	}
	var st status.Status
	switch err := r.fetchStatus(ctx, pod.Status.PodIP, plan.AdminPort, &st); {
	case err == nil:
		slices.SortFunc(st.Exports, func(a, b status.Export) int { return cmp.Compare(a.Name, b.Name) })
		p.status = &st
	case before.status != nil && !before.statusStale:
		p.status, p.statusStale = before.status, true
	default:
		p.pollError, p.lastListeners = err.Error(), before.listeners()
	}
	if hasSpeaker(&pod) {
		var sp api.Status
		if err := r.fetchStatus(ctx, pod.Status.PodIP, plan.SpeakerPort, &sp); err == nil {
			p.speaker = &sp
		} else if !before.speakerStale {
			p.speaker, p.speakerStale = before.speaker, true
		}
	}
	r.states.setPod(req.NamespacedName, p)
	every := pollEvery
	if r.states.applying(&pod, time.Now(), pollPatient) || p.statusStale || p.speakerStale && p.speaker != nil {
		every = pollSoon
	}
	return ctrl.Result{RequeueAfter: every*9/10 + rand.N(every/5)}, nil
}

// fetchStatus decodes /status of a pod.
func (r *PodStatusReconciler) fetchStatus(ctx context.Context, ip string, port int, into any) error {
	u := "http://" + net.JoinHostPort(ip, strconv.Itoa(port)) + "/status"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return err
	}
	res, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", u, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, r.limit+1))
	switch n := bytes.Count(body, []byte{'{'}); {
	case err != nil:
	case int64(len(body)) > r.limit:
		err = fmt.Errorf("the answer is longer than %d bytes", r.limit)
	case n > 1000+len(body)/minObjectSize:
		err = fmt.Errorf("%d objects in %d bytes: want an answer as gateways write it", n, len(body))
	default:
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("GET %s: %w", u, err)
	}
	return nil
}
