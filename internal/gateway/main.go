package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/telemetry"
)

// Main is the gateway's command line. It returns the exit code.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	return new(cli).main(args, version, stdout, stderr)
}

func (c *cli) main(args []string, version string, stdout, stderr io.Writer) int {
	code, done := c.parse(args, version, stdout, stderr)
	if done {
		return code
	}
	if c.check {
		return c.checkFile(stdout, stderr)
	}
	if err := c.run(version, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "gateway:", err)
		return exitError
	}
	return exitOK
}

// checkFile prints all problems of the configuration file.
func (c *cli) checkFile(stdout, stderr io.Writer) int {
	f, err := readConfig(c.file)
	if err != nil {
		printProblems(stderr, c.file, err)
		return exitError
	}
	for _, r := range f.Refused {
		printProblems(stderr, c.file, r.Problems)
	}
	if len(f.Refused) > 0 {
		return exitError
	}
	fmt.Fprintf(stdout, "%s is valid: %d exports\n", c.file, len(f.Config.Exports))
	return exitOK
}

// printProblems prints one problem a line, after the name of the file.
func printProblems(w io.Writer, file string, err error) {
	var ps config.Problems
	if !errors.As(err, &ps) {
		fmt.Fprintln(w, "gateway:", err)
		return
	}
	for _, p := range ps {
		fmt.Fprintf(w, "%s: %v\n", file, p)
	}
}

// run serves until a signal.
func (c *cli) run(version string, stdout, stderr io.Writer) error {
	o := Options{Version: version, File: c.file, Config: c.config, Level: new(slog.LevelVar), Profile: c.pprofs, Host: c.host, AdminHosts: c.adminHosts, decorate: c.decorate}
	format := c.logFormat
	if c.file != "" {
		f, err := readConfig(c.file)
		if err != nil {
			printProblems(stderr, c.file, err)
			return errors.New("invalid configuration")
		}
		format = telemetry.LogFormat(f.Config.Log.Format)
	}
	o.Log = slog.New(format.Handler(stderr, o.Level))
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	g, err := New(o)
	if err != nil {
		return err
	}
	if err := start(g, signals); errors.Is(err, errSignal) {
		o.Log.Info("stopped during the start", "error", err)
		go killAtNext(signals)
		return g.Stop(context.Background())
	} else if err != nil {
		return errors.Join(err, g.Stop(context.Background()))
	}
	if c.file == "" && !g.Status().Ready {
		err := errors.New(g.notReadyReason())
		return errors.Join(err, g.Stop(context.Background()))
	}
	g.announce(stdout)
	if err := notify(notifyReady); err != nil {
		o.Log.Warn("notify failed", "error", err)
	}
	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		g.Watch(watching)
	}()
	for s := range signals {
		if s != syscall.SIGHUP {
			o.Log.Info("draining; a second signal ends the process at once", "signal", s.String(), "timeout", g.drainLimit())
			break
		}
		g.Reload()
	}
	go killAtNext(signals)
	if err := notify(notifyStopping); err != nil {
		o.Log.Warn("notify failed", "error", err)
	}
	stopWatching()
	<-watched
	err = g.Stop(context.Background())
	time.Sleep(c.linger)
	o.Log.Info("stopped")
	return err
}

// errSignal is the error of a start that a signal ended.
var errSignal = errors.New("stopped by a signal")

// start starts g. A signal ends the wait: a start can take as long as a directory does not answer.
func start(g *Gateway, signals <-chan os.Signal) error {
	done := make(chan error, 1)
	go func() { done <- g.Start() }()
	for {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP { // the start reads the file anyway
				return fmt.Errorf("%w: %v", errSignal, s)
			}
		}
	}
}

// killAtNext ends the process at the next signal to stop.
func killAtNext(signals <-chan os.Signal) {
	for s := range signals {
		if s != syscall.SIGHUP {
			os.Exit(exitKill)
		}
	}
}
