package execstop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const defaultPatience = 10 * time.Second

// Available returns nil if a child can be started under trace here, or else
// what is in the way. It tries.
func Available() error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to try ptrace on it: %w", err)
	}
	// The child is killed at its exec stop: not an instruction of it runs.
	cmd := exec.Command(exe)
	err = Start(cmd, Options{}, probe{})
	if errors.Is(err, errProbe) {
		return nil
	}
	return fmt.Errorf("ptrace of an own child does not work here (a seccomp profile or a sandbox may forbid it): %w", err)
}

// probe makes a system call in the process, and fails.
type probe struct{}

var errProbe = errors.New("the trial ends here")

func (probe) Files() []*os.File { return nil }

func (probe) Apply(t *Tracee, _ []int) error {
	pid, err := t.Syscall(unix.SYS_GETPID)
	if err != nil {
		return err
	}
	if int(pid) != t.pid {
		return fmt.Errorf("getpid in process %d returned %d", t.pid, pid)
	}
	return errProbe
}

func start(cmd *exec.Cmd, o Options, patches []Patch) error {
	want, err := o.find()
	if err != nil {
		return err
	}
	patience := o.Patience
	if patience == 0 {
		patience = defaultPatience
	}
	fds := make([][]int, len(patches))
	for i, p := range patches {
		for _, f := range p.Files() {
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			fds[i] = append(fds[i], 2+len(cmd.ExtraFiles))
		}
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	// All waits of trace are for a stop of the child, and its death ends them
	// too: so this bounds them.
	alarm := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err = trace(cmd.Process.Pid, want, patches, fds)
	late := !alarm.Stop()
	if err == nil && !late {
		return nil
	}
	if late {
		err = errors.Join(fmt.Errorf("not reached within %v", patience), err)
		if want != nil {
			err = fmt.Errorf("exec of %s: %w", o.Program, err)
		}
	}
	_ = cmd.Process.Kill() // fails only if it has ended
	end := cmd.Wait()      // says that it was killed, or that trace has reaped it
	if errors.Is(err, unix.ESRCH) && !late {
		err = fmt.Errorf("it ended meanwhile (%v): %w", end, err)
	}
	return fmt.Errorf("prepare %s before it runs: %w", cmd.Path, err)
}

// trace takes a new child from its first stop to the exec of want, applies the
// patches and lets it go.
func trace(pid int, want os.FileInfo, patches []Patch, fds [][]int) error {
	t := &Tracee{pid: pid}
	stop, err := t.wait()
	if err != nil {
		return err
	}
	if stop.StopSignal() != unix.SIGTRAP {
		return fmt.Errorf("the process stopped with %v, not at its exec", stop.StopSignal())
	}
	// TRACESYSGOOD tells stops at system calls from real SIGTRAPs. EXITKILL
	// leaves no half-patched process if this one dies now.
	err = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL)
	if err != nil {
		return fmt.Errorf("PTRACE_SETOPTIONS: %w", err)
	}
	if err := t.follow(want); err != nil {
		return err
	}
	if err := t.open(); err != nil {
		return err
	}
	for i, p := range patches {
		if err := p.Apply(t, fds[i]); err != nil {
			return err
		}
	}
	return t.close()
}

// arrived says if the process runs the file want, or if that is nil, any file
// that is no wrapper.
func (t *Tracee) arrived(want os.FileInfo) (bool, error) {
	link := fmt.Sprintf("/proc/%d/exe", t.pid)
	if want == nil {
		// Where the link can't be read, as of another user's process by a
		// root without capabilities, the first program has to do.
		exe, err := os.Readlink(link)
		return err != nil || !slices.Contains(wrappers, filepath.Base(exe)), nil
	}
	fi, err := os.Stat(link)
	if err != nil {
		return false, fmt.Errorf("see which program runs: %w", err)
	}
	return os.SameFile(fi, want), nil
}

// follow runs the process until it has arrived.
func (t *Tracee) follow(want os.FileInfo) error {
	for sig := 0; ; {
		if ok, err := t.arrived(want); ok || err != nil {
			return err
		}
		for execed := false; !execed; {
			if err := unix.PtraceCont(t.pid, sig); err != nil {
				return fmt.Errorf("PTRACE_CONT: %w", err)
			}
			stop, err := t.wait()
			if err != nil {
				return fmt.Errorf("before the exec: %w", err)
			}
			sig = 0
			if stop.TrapCause() == unix.PTRACE_EVENT_EXEC {
				execed = true
			} else {
				sig = int(stop.StopSignal())
			}
		}
		// It is still inside execve. Run to the end of the call, which
		// would overwrite rax.
		if err := t.toSyscallStop(); err != nil {
			return err
		}
	}
}

// Tracee is a process stopped before its first instruction. It may be used
// only within Apply, on the thread that Apply is called on.
type Tracee struct {
	pid     int
	regs    unix.PtraceRegs // at the stop
	sigmask uint64          // at the stop
	vdso    uintptr         // where the process has it
	scratch uintptr         // free memory on the stack, growing downwards
	pending int             // a signal to deliver when it is let go
}

// PID returns the id of the process.
func (t *Tracee) PID() int { return t.pid }

// open readies the process for Syscall.
func (t *Tracee) open() error {
	if err := unix.PtraceGetRegs(t.pid, &t.regs); err != nil {
		return fmt.Errorf("PTRACE_GETREGS: %w", err)
	}
	const userCS64 = 0x33
	if t.regs.Cs != userCS64 {
		return errors.New("the program is not a 64-bit one")
	}
	if err := t.findVDSO(); err != nil {
		return err
	}
	// Below the red zone of the ABI; the kernel grows the stack.
	t.scratch = uintptr(t.regs.Rsp-4096) &^ 15
	if err := t.sigprocmask(unix.PTRACE_GETSIGMASK, &t.sigmask); err != nil {
		return err
	}
	all := ^uint64(0) // what arrives stays pending until close
	return t.sigprocmask(unix.PTRACE_SETSIGMASK, &all)
}

// close lets the process run, as if nothing had happened.
func (t *Tracee) close() error {
	if err := unix.PtraceSetRegs(t.pid, &t.regs); err != nil {
		return fmt.Errorf("PTRACE_SETREGS: %w", err)
	}
	if err := t.sigprocmask(unix.PTRACE_SETSIGMASK, &t.sigmask); err != nil {
		return err
	}
	return t.request(unix.PTRACE_DETACH, 0, uintptr(t.pending))
}

// Syscall makes the process call the kernel and returns the result. The error
// is the call's, or says that it could not be made.
func (t *Tracee) Syscall(nr uintptr, args ...uintptr) (uintptr, error) {
	v, err := vdso()
	if err != nil {
		return 0, err
	}
	r := t.regs
	r.Rip = uint64(t.vdso + v.syscall)
	r.Rax, r.Orig_rax = uint64(nr), ^uint64(0)
	for i, reg := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}[:len(args)] {
		*reg = uint64(args[i])
	}
	if err := unix.PtraceSetRegs(t.pid, &r); err != nil {
		return 0, fmt.Errorf("PTRACE_SETREGS: %w", err)
	}
	for range 2 { // into the call and out of it
		if err := t.toSyscallStop(); err != nil {
			return 0, err
		}
	}
	if err := unix.PtraceGetRegs(t.pid, &r); err != nil {
		return 0, fmt.Errorf("PTRACE_GETREGS: %w", err)
	}
	if e := int64(r.Rax); e < 0 && e > -4096 {
		return 0, fmt.Errorf("system call %d in process %d: %w", nr, t.pid, syscall.Errno(-e))
	}
	return uintptr(r.Rax), nil
}

// Push puts data on the stack of the process, below all that is in use, and
// returns its address, a multiple of 16. It is gone once the process runs.
func (t *Tracee) Push(data []byte) (uintptr, error) {
	t.scratch = (t.scratch - uintptr(len(data))) &^ 15
	return t.scratch, t.Write(t.scratch, data)
}

// Write writes into the memory of the process, whatever its protection.
func (t *Tracee) Write(addr uintptr, data []byte) error {
	if _, err := unix.PtracePokeData(t.pid, addr, data); err != nil {
		return fmt.Errorf("write %d bytes at %#x of process %d: %w", len(data), addr, t.pid, err)
	}
	return nil
}

// Read reads from the memory of the process.
func (t *Tracee) Read(addr uintptr, data []byte) error {
	if _, err := unix.PtracePeekData(t.pid, addr, data); err != nil {
		return fmt.Errorf("read %d bytes at %#x of process %d: %w", len(data), addr, t.pid, err)
	}
	return nil
}

// word reads a word of the process.
func (t *Tracee) word(addr uintptr) (uint64, error) {
	var b [8]byte
	err := t.Read(addr, b[:])
	return binary.NativeEndian.Uint64(b[:]), err
}

// wait waits for the next stop.
func (t *Tracee) wait() (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(t.pid, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return ws, fmt.Errorf("wait for process %d: %w", t.pid, err)
		case ws.Exited():
			return ws, fmt.Errorf("process %d exited with status %d", t.pid, ws.ExitStatus())
		case ws.Signaled():
			return ws, fmt.Errorf("process %d was ended by signal %v", t.pid, ws.Signal())
		}
		return ws, nil
	}
}

// toSyscallStop runs the process to its next entry into or exit from a system
// call. A signal that stops it meanwhile is kept for later.
func (t *Tracee) toSyscallStop() error {
	for {
		if err := unix.PtraceSyscall(t.pid, 0); err != nil {
			return fmt.Errorf("PTRACE_SYSCALL: %w", err)
		}
		stop, err := t.wait()
		if err != nil {
			return err
		}
		if stop.StopSignal() == unix.SIGTRAP|0x80 {
			return nil
		}
		t.pending = int(stop.StopSignal())
	}
}

func (t *Tracee) sigprocmask(request uintptr, set *uint64) error {
	if err := t.request(request, unsafe.Sizeof(*set), uintptr(unsafe.Pointer(set))); err != nil {
		return fmt.Errorf("block signals of process %d: %w", t.pid, err)
	}
	runtime.KeepAlive(set)
	return nil
}

func (t *Tracee) request(request, addr, data uintptr) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, request, uintptr(t.pid), addr, data, 0, 0); e != 0 {
		return fmt.Errorf("ptrace request %#x of process %d: %w", request, t.pid, e)
	}
	return nil
}
