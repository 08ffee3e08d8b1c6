package operator

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
)

var least = []string{"--gateway-image", "gateway:1", "--operator-image", "operator:1", "--namespace", "sluice-system"}

func TestFlags(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	s, err := parse(append(least, "--watch-namespaces", "a, b,", "--collector-labels", "app=prometheus", "--collector-labels", "app=agent,shard=1", "--monitoring-labels", "release=prometheus", "--image-pull-secrets", "one, two", "--log-level", "debug", "--leader-elect=false"), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	d := s.controllers.Defaults
	if s.controllers.ClusterScope || !reflect.DeepEqual(s.namespaces, []string{"a", "b"}) {
		t.Errorf("namespaces %q, the whole cluster: %v", s.namespaces, s.controllers.ClusterScope)
	}
	if d.VerbsImage != "gateway:1" || d.SpeakerImage != "operator:1" || d.OperatorLabels["app.kubernetes.io/component"] != "operator" || d.MonitoringLabels["release"] != "prometheus" || !reflect.DeepEqual(d.PullSecrets, []string{"one", "two"}) ||
		!reflect.DeepEqual(d.CollectorLabels, []map[string]string{{"app": "prometheus"}, {"app": "agent", "shard": "1"}}) {
		t.Errorf("%+v", d)
	}
	if s.manager.LeaderElection || s.manager.LeaderElectionNamespace != "sluice-system" || s.level != slog.LevelDebug {
		t.Errorf("%+v", s)
	}
	if s, err := parse(least, &bytes.Buffer{}); err != nil || !s.controllers.ClusterScope || !s.manager.LeaderElection || s.controllers.Defaults.MonitoringLabels != nil || s.controllers.Defaults.CollectorLabels != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFlagsRefused(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{least[2:], "--gateway-image is wanted"},
		{least[:4], "--namespace is wanted"},
		{append(least, "more"), `"more": want flags alone`},
		{append(least, "--operator-labels", "a in (b)"), "--operator-labels: "},
		{append(least, "--monitoring-labels", "=x"), "--monitoring-labels: "},
		{append(least, "--collector-labels", "=x"), "-collector-labels"},
		{append(least, "--collector-labels", ""), "want labels, such as app.kubernetes.io/name=prometheus"},
		{append(least, "--provisioner", "10.0.0.1,here"), `--provisioner: "here": want addresses of this pod`},
		{append(least, "--log-level", "loud"), "-log-level"},
	} {
		var stderr bytes.Buffer
		if code := Main(c.args, "v1", &bytes.Buffer{}, &stderr); code != 2 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: exit code %d, %s; want %q in it", c.args, code, stderr.String(), c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	var stdout bytes.Buffer
	if code := Main([]string{"--version"}, "v1", &stdout, &bytes.Buffer{}); code != 0 || stdout.String() != "v1\n" {
		t.Errorf("exit code %d, %q", code, stdout.String())
	}
	// The speaker has flags of its own.
	if code := Main([]string{"speaker", "--no-such-flag"}, "v1", &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
		t.Errorf("exit code %d of a speaker with a flag that there is none of", code)
	}
}
