package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/internal/serve"
	"github.com/lockcheck/lockcheck/reports/page"
)

func (a *app) serveCommand() *cobra.Command {
	listen := "127.0.0.1:8420"
	var hosts []string
	c := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Show runs in a browser: a list, their pages, two side by side, one that is going on",
		Long: `Show the runs in a folder (default lockcheck-runs) in a browser. Nothing is written,
and nothing outside of the folder is read. The server listens on loopback unless
--listen says otherwise; there is no access control, so think before it does.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "lockcheck-runs"
			if len(args) == 1 {
				dir = args[0]
			}
			return a.serve(c.Context(), dir, listen, hosts)
		},
	}
	c.Flags().StringVar(&listen, "listen", listen, "address to listen on; port 0 is any free one")
	c.Flags().StringSliceVar(&hosts, "host", nil, "names, besides those of loopback, by which browsers may call the server")
	return c
}

// serve serves until ctx ends.
func (a *app) serve(ctx context.Context, dir, listen string, hosts []string) error {
	s, err := serve.New(serve.Options{Dir: dir, Hosts: hosts, Write: writePage})
	if err != nil {
		return usage(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return environment(err)
	}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends what is followed
	}
	fmt.Fprintf(a.stdout, "http://%s/ shows %s; Ctrl-C ends it\n", l.Addr(), dir)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return environment(err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close() // ends what did not end in time
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return environment(err)
	}
	return nil
}

// writePage writes the page of the run in a folder.
func writePage(w io.Writer, dir string) error {
	t, err := harness.Tell(dir, harness.CheckOptions{})
	if err != nil {
		return err
	}
	return page.Write(w, t.Run, t.History, t.Events)
}
