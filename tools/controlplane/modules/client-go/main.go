// clientgo-elector runs client-go's leader election as a program would that follows its documentation, and prints what
// happens, one JSON object a line on stdout, for tests and benchmarks that set it beside Leasewarden.
//
// Each Lease named gets an elector with a client of its own, as if each were a program of its own: client-go's default
// limit of 5 requests per second is per client.
//
// SIGTERM stops it as client-go's documentation asks: the work ends first, then the elector's context is cancelled (with
// -release, the default here, it then releases the Lease). The exit code is 0 after that. A leadership that is lost is
// contended for again.
//
// It ends when its standard input does, without releasing anything: whoever started it is gone.
//
// Times are nanoseconds of CLOCK_BOOTTIME, which all processes of a machine share.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// event is a line of output.
//
//	ready    the electors run
//	elected  OnStartedLeading was called: the work starts
//	effect   the work did something, believing itself the leader
//	ended    the work has ended
//	stopped  OnStoppedLeading was called
//	leader   OnNewLeader was called
type event struct {
	At     int64  `json:"at"`
	Event  string `json:"event"`
	Lease  string `json:"lease,omitempty"`
	ID     string `json:"id"`
	Leader string `json:"leader,omitempty"`
}

type output struct {
	mutex sync.Mutex
	id    string
}

// The time is taken under the lock, so that lines are in the order of their times. One write a line: what was printed
// before a SIGKILL is whole.
func (o *output) print(name, lease, leader string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	line, err := json.Marshal(event{At: now.Nano(), Event: name, Lease: lease, ID: o.id, Leader: leader})
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		// Nobody listens any more.
		os.Exit(1)
	}
}

type options struct {
	kubeconfig, namespace, leases, id string
	leaseDuration, renewDeadline      time.Duration
	retryPeriod, effectEvery          time.Duration
	release                           bool
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "where the API server is and who asks")
	flag.StringVar(&o.namespace, "namespace", "default", "the Leases' namespace")
	flag.StringVar(&o.leases, "lease", "", "names of Leases, with commas between them")
	flag.StringVar(&o.id, "id", "", "the holder's identity")
	// The defaults of Kubernetes' own components, which client-go's documentation recommends.
	flag.DurationVar(&o.leaseDuration, "lease-duration", 15*time.Second, "LeaseDuration")
	flag.DurationVar(&o.renewDeadline, "renew-deadline", 10*time.Second, "RenewDeadline")
	flag.DurationVar(&o.retryPeriod, "retry-period", 2*time.Second, "RetryPeriod")
	flag.DurationVar(&o.effectEvery, "effect-every", 0, "how often the work prints an effect; 0: never")
	flag.BoolVar(&o.release, "release", true, "ReleaseOnCancel")
	flag.Parse()
	if o.leases == "" || o.id == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: clientgo-elector -lease NAME[,NAME...] -id ID [options]")
		flag.PrintDefaults()
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "clientgo-elector:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	stop, stopped := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stopped()
	out := &output{id: o.id}
	var electors sync.WaitGroup
	for _, lease := range strings.Split(o.leases, ",") {
		elector, err := newElector(o, lease, config, out, stop)
		if err != nil {
			return err
		}
		electors.Go(elector.run)
	}
	out.print("ready", "", "")
	electors.Wait()
	return nil
}

// elector contends for one Lease until it is told to stop.
type elector struct {
	lease       string
	out         *output
	effectEvery time.Duration
	// Done once the program is to end.
	stop   context.Context
	config leaderelection.LeaderElectionConfig
	// Held while the work runs.
	working sync.Mutex
}

func newElector(o options, lease string, config *rest.Config, out *output, stop context.Context) (*elector, error) {
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	e := &elector{lease: lease, out: out, effectEvery: o.effectEvery, stop: stop}
	e.config = leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: lease},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.id},
		},
		LeaseDuration:   o.leaseDuration,
		RenewDeadline:   o.renewDeadline,
		RetryPeriod:     o.retryPeriod,
		ReleaseOnCancel: o.release,
		Name:            lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: e.work,
			OnStoppedLeading: func() { out.print("stopped", lease, "") },
			OnNewLeader:      func(leader string) { out.print("leader", lease, leader) },
		},
	}
	// Refuses durations that cannot work.
	_, err = leaderelection.NewLeaderElector(e.config)
	return e, err
}

func (e *elector) run() {
	// Not derived from stop: "you must ensure all code guarded by this lease has successfully completed prior to
	// cancelling the context" (ReleaseOnCancel).
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-e.stop.Done()
		e.working.Lock()
		defer e.working.Unlock()
		cancel()
	}()
	for e.stop.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(e.config)
		if err != nil {
			panic(err)
		}
		elector.Run(ctx)
	}
}

// work believes in its leadership until its context is cancelled, as users of client-go do.
func (e *elector) work(ctx context.Context) {
	e.working.Lock()
	defer e.working.Unlock()
	if ctx.Err() != nil || e.stop.Err() != nil {
		// Called in a goroutine of its own: it may be over by now.
		return
	}
	e.out.print("elected", e.lease, "")
	defer e.out.print("ended", e.lease, "")
	var effects <-chan time.Time
	if e.effectEvery > 0 {
		ticker := time.NewTicker(e.effectEvery)
		defer ticker.Stop()
		effects = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.stop.Done():
			return
		case <-effects:
			e.out.print("effect", e.lease, "")
		}
	}
}
