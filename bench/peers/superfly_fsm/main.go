// Runs five-step runs on superfly/fsm for a while and prints how long each took, as JSON, for bench/engine.py.
//
//	superfly_fsm DIRECTORY AT_ONCE SECONDS
//
// What it guarantees: the start of a run, each transition's end with its response, and the end of the run are each one
// bbolt transaction of their own, with an fsync (fdatasync) each: seven for a run of five steps.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/superfly/fsm"
)

const warmUp = 300 * time.Millisecond

type order struct {
	InstanceID string `json:"instance_id"`
	Launch     bool   `json:"launch"`
}

type result struct {
	InstanceID string `json:"instance_id"`
	Pid        int    `json:"pid"`
}

type measured struct {
	Seconds   float64   `json:"seconds"`
	LatencyMs []float64 `json:"latency_ms"`
}

func hold(_ context.Context, request *fsm.Request[order, result]) (*fsm.Response[result], error) {
	return fsm.NewResponse(&result{InstanceID: request.Msg.InstanceID, Pid: 4242}), nil
}

func main() {
	if err := bench(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bench(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: superfly_fsm DIRECTORY AT_ONCE SECONDS")
	}
	atOnce, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(arguments[2], 64)
	if err != nil {
		return err
	}
	logger := logrus.New()
	logger.SetOutput(io.Discard) // a line per transition is no part of the engine's work
	logger.SetLevel(logrus.ErrorLevel)
	manager, err := fsm.New(fsm.Config{Logger: logger, DBPath: arguments[0]})
	if err != nil {
		return err
	}
	ctx := context.Background()
	start, _, err := fsm.Register[order, result](manager, "five").
		Start("image", hold).To("rootfs", hold).To("network", hold).To("launch", hold).To("check", hold).
		End("done").Build(ctx)
	if err != nil {
		return err
	}
	if _, err := callers(ctx, manager, start, atOnce, warmUp); err != nil {
		return err
	}
	found, err := callers(ctx, manager, start, atOnce, time.Duration(seconds*float64(time.Second)))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// callers has atOnce callers, each with a resource of its own, start a run and, when it has ended, the next.
func callers(
	ctx context.Context, manager *fsm.Manager, start fsm.Start[order, result], atOnce int, lasting time.Duration,
) (measured, error) {
	var (
		group  sync.WaitGroup
		lock   sync.Mutex
		found  measured
		failed error
	)
	began := time.Now()
	for number := range atOnce {
		group.Add(1)
		go func() {
			defer group.Done()
			taken, err := call(ctx, manager, start, fmt.Sprintf("%014x", number), began.Add(lasting))
			lock.Lock()
			defer lock.Unlock()
			found.LatencyMs = append(found.LatencyMs, taken...)
			if err != nil {
				failed = err
			}
		}()
	}
	group.Wait()
	found.Seconds = time.Since(began).Seconds()
	return found, failed
}

func call(
	ctx context.Context, manager *fsm.Manager, start fsm.Start[order, result], id string, until time.Time,
) ([]float64, error) {
	var taken []float64
	for began := time.Now(); began.Before(until); began = time.Now() {
		request := fsm.NewRequest(&order{InstanceID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Launch: true}, &result{})
		version, err := start(ctx, id, request)
		if err != nil {
			return taken, err
		}
		if err := manager.Wait(ctx, version); err != nil {
			return taken, err
		}
		taken = append(taken, float64(time.Since(began))/float64(time.Millisecond))
	}
	return taken, nil
}
