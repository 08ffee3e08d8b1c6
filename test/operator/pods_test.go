//go:build operator

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
)

// server is a gateway with a directory, the backend of exports.
type server struct {
	cmd  *exec.Cmd
	port int
}

func startServer(dir string) (*server, error) {
	if err := os.MkdirAll(filepath.Join(dir, "volume"), 0o777); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	s := &server{port: port}
	s.cmd = exec.Command(gateway, "--volume", filepath.Join(dir, "volume"), "--state-dir", filepath.Join(dir, "state"), "--tcp", fmt.Sprintf("127.0.0.1:%d", port),
		"--rdma", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-level", "error", "--allow", "127.0.0.0/16")
	s.cmd.Stderr = os.Stderr
	return s, s.cmd.Start()
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// nodes stands in for a cluster's nodes and workload controllers in one namespace: pods come and
// go, their gateways run in a directory that is their root, and their files follow their ConfigMap
// when the pod is touched.
type nodes struct {
	t         *testing.T
	namespace string
	dir       string
	subnet    int
	host      atomic.Int32
	held      atomic.Bool                // files stay as they are, as with a slow kubelet
	spoiled   atomic.Bool                // files are invalid for a gateway
	speakers  atomic.Pointer[api.Status] // the speakers' reply; nil: none
	// prepare makes files in a pod's root, and returns shell commands to run before its gateway.
	prepare func(root string) (string, error)
	environ []string // of gateways, added
	mu      sync.Mutex
	running map[string]*running
}

// running is a pod whose gateway runs.
type running struct {
	ip, root, touched string
	uid               string
	cmd               *exec.Cmd
	log               *os.File
	ready             bool
}

var subnets atomic.Int32

// startNodes runs them until the test ends.
func startNodes(t *testing.T, namespace string) *nodes {
	n := &nodes{t: t, namespace: namespace, dir: t.TempDir(), subnet: int(subnets.Add(1)), running: map[string]*running{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := n.step(ctx); err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "not found") && !strings.Contains(err.Error(), "modified") {
				t.Errorf("nodes: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for name, r := range n.running {
			r.kill()
			if text, err := os.ReadFile(filepath.Join(r.root, "log")); err == nil && t.Failed() {
				t.Logf("%s:\n%s", name, text)
			}
		}
	})
	return n
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	_ = r.log.Close()
}

// workload is a Deployment or StatefulSet.
type workload struct {
	name     string
	uid      string
	replicas int
	template corev1.PodTemplateSpec
}

func (n *nodes) step(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	var pods corev1.PodList
	here := client.InNamespace(n.namespace)
	if err := errors.Join(kube.List(ctx, &deployments, here), kube.List(ctx, &sets, here), kube.List(ctx, &pods, here)); err != nil {
		return err
	}
	var all []workload
	for _, d := range deployments.Items {
		all = append(all, workload{d.Name, string(d.UID), int(*d.Spec.Replicas), d.Spec.Template})
	}
	for _, s := range sets.Items {
		all = append(all, workload{s.Name, string(s.UID), int(*s.Spec.Replicas), s.Spec.Template})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := map[string]bool{}
	for _, w := range all {
		for i := range w.replicas {
			name := fmt.Sprintf("%s-%d", w.name, i)
			kept[name] = true
			if err := n.pod(ctx, &w, name, pods.Items); err != nil {
				return err
			}
		}
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; !kept[p.Name] && p.Annotations["test"] == "" {
			if err := n.end(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *nodes) end(ctx context.Context, p *corev1.Pod) error {
	if r := n.running[p.Name]; r != nil {
		r.kill()
		delete(n.running, p.Name)
	}
	return client.IgnoreNotFound(kube.Delete(ctx, p, client.GracePeriodSeconds(0)))
}

// configMap names the ConfigMap of a pod's configuration.
func configMap(s *corev1.PodSpec) string {
	for _, v := range s.Volumes {
		if v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	return ""
}

// pod keeps one pod of a workload running.
func (n *nodes) pod(ctx context.Context, w *workload, name string, pods []corev1.Pod) error {
	var pod *corev1.Pod
	for i := range pods {
		if pods[i].Name == name {
			pod = &pods[i]
		}
	}
	if pod == nil {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: n.namespace, Labels: w.template.Labels, Annotations: w.template.Annotations}, Spec: *w.template.Spec.DeepCopy()}
		return kube.Create(ctx, pod)
	}
	if configMap(&pod.Spec) != configMap(&w.template.Spec) || pod.DeletionTimestamp != nil {
		return n.end(ctx, pod)
	}
	r := n.running[name]
	if r != nil && r.uid != string(pod.UID) {
		r.kill()
		delete(n.running, name)
		r = nil
	}
	if r == nil {
		return n.start(ctx, pod)
	}
	if touched := pod.Annotations[plan.AnnotationConfig]; touched != r.touched && !n.held.Load() {
		if err := n.files(ctx, pod, r.root); err != nil {
			return err
		}
		r.touched = touched
	}
	if !r.ready {
		res, err := http.Get("http://" + net.JoinHostPort(r.ip, fmt.Sprint(plan.AdminPort)) + "/readyz")
		if err != nil {
			return nil //nolint:nilerr // it starts
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil
		}
		r.ready = true
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, r.ip, []corev1.PodIP{{IP: r.ip}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return kube.Status().Update(ctx, pod)
	}
	return nil
}

// start runs a pod's gateway, with the pod's directory as its root.
func (n *nodes) start(ctx context.Context, pod *corev1.Pod) error {
	root := filepath.Join(n.dir, string(pod.UID))
	for _, d := range []string{plan.ConfigDir, plan.KeysDir, plan.StateDir, plan.VolumeDir, "/tmp", "/proc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := n.files(ctx, pod, root); err != nil {
		return err
	}
	// A link: a process started by another goroutine meanwhile could inherit a copy's descriptor,
	// and running the copy would fail with "busy".
	if err := os.Link(gateway, filepath.Join(root, "gateway")); err != nil {
		return err
	}
	r := &running{root: root, uid: string(pod.UID), touched: pod.Annotations[plan.AnnotationConfig]}
	host := n.host.Add(1)
	r.ip = fmt.Sprintf("127.%d.%d.%d", n.subnet, host/250, 1+host%250)
	// With a mount namespace of its own, /proc is gone with it.
	var first string
	var err error
	if n.prepare != nil {
		if first, err = n.prepare(root); err != nil {
			return err
		}
	}
	r.cmd = exec.Command("unshare", append([]string{"-m", "sh", "-c", first + `mount --rbind /proc proc && exec chroot . /gateway "$@"`, "sh"}, append(expanded(pod, r.ip), "--host", r.ip)...)...)
	r.cmd.Dir, r.cmd.SysProcAttr = root, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.cmd.Env = append(os.Environ(), n.environ...)
	if r.log, err = os.Create(filepath.Join(root, "log")); err != nil {
		return err
	}
	r.cmd.Stderr = r.log
	if n.speakers.Load() != nil {
		if err := n.speak(r.ip); err != nil {
			return err
		}
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", pod.Name, err)
	}
	n.running[pod.Name] = r
	return nil
}

// lose kills a pod's gateway without a notice to the API server, as a dying node does.
func (n *nodes) lose(t *testing.T, pod string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.running[pod]
	if r == nil {
		t.Fatalf("pod %s does not run", pod)
	}
	_ = r.cmd.Process.Kill()
}

// speak answers for a pod's speaker, which has no network here, until the test ends.
func (n *nodes) speak(ip string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(plan.SpeakerPort)))
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(n.speakers.Load()) })}
	go func() { _ = s.Serve(l) }()
	n.t.Cleanup(func() { _ = s.Close() })
	return nil
}

// files writes the contents of a pod's volumes.
func (n *nodes) files(ctx context.Context, pod *corev1.Pod, root string) error {
	for _, v := range pod.Spec.Volumes {
		files := map[string][]byte{}
		dir := plan.ConfigDir
		switch {
		case v.ConfigMap != nil:
			var c corev1.ConfigMap
			if err := kube.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.ConfigMap.Name}, &c); err != nil {
				return err
			}
			for k, text := range c.Data {
				if n.spoiled.Load() {
					text = "unknown: true\n"
				}
				files[k] = []byte(text)
			}
		case v.Secret != nil:
			var s corev1.Secret
			if err := kube.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.Secret.SecretName}, &s); err != nil {
				return err
			}
			dir, files = plan.KeysDir, s.Data
		}
		for name, b := range files {
			file := filepath.Join(root, dir, name)
			if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, b) {
				continue
			}
			if err := errors.Join(os.WriteFile(file+".new", b, 0o400), os.Rename(file+".new", file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// expanded returns the arguments of a pod's gateway, with the variables of the kubelet's downward
// API.
func expanded(pod *corev1.Pod, ip string) []string {
	args := slices.Clone(pod.Spec.Containers[0].Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_IPS)", ip)
	}
	return args
}
