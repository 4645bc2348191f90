package execstop

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"unsafe"
)

// image describes the vDSO, which is the same in every 64-bit process.
type image struct {
	header  [16]byte
	syscall uintptr          // offset of a syscall instruction
	symbols map[string]entry // by name
}

// entry is where the symbol table has the value of a symbol.
type entry struct {
	at    uintptr // offset of the value
	value uintptr // offset of the function
}

var vdso = sync.OnceValues(func() (*image, error) {
	auxv, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return nil, fmt.Errorf("find the vDSO: %w", err)
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.NativeEndian.Uint64(auxv) == atSysinfoEhdr {
			return parse(uintptr(binary.NativeEndian.Uint64(auxv[8:])))
		}
	}
	return nil, errNoVDSO
})

const atSysinfoEhdr = 33

var errNoVDSO = errors.New("this kernel gives processes no vDSO (vdso=0 on its command line, or a sandbox)")

// parse reads the vDSO that is mapped at base in this process.
func parse(base uintptr) (*image, error) {
	data, err := mapped(base)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("parse the vDSO: %w", err)
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("parse the vDSO: %w", err)
	}
	table := f.SectionByType(elf.SHT_DYNSYM)
	im := &image{symbols: map[string]entry{}}
	copy(im.header[:], data)
	for i, s := range syms {
		// DynamicSymbols leaves out the null symbol.
		at := table.Addr + uint64(i+1)*elf.Sym64Size + uint64(unsafe.Offsetof(elf.Sym64{}.Value))
		if at+8 > uint64(len(data)) || binary.NativeEndian.Uint64(data[at:]) != s.Value {
			return nil, errors.New("parse the vDSO: its symbol table is not where its headers say")
		}
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			im.symbols[s.Name] = entry{uintptr(at), uintptr(s.Value)}
		}
	}
	text := f.Section(".text")
	if text == nil || text.Addr+text.Size > uint64(len(data)) {
		return nil, errors.New("parse the vDSO: it has no text")
	}
	// Every function falls back to the system call. It does not matter if
	// these bytes are part of another instruction: only they are executed.
	i := bytes.Index(data[text.Addr:text.Addr+text.Size], []byte{0x0f, 0x05})
	if i < 0 {
		return nil, errors.New("parse the vDSO: it has no syscall instruction")
	}
	im.syscall = uintptr(text.Addr) + uintptr(i)
	return im, nil
}

// mapped returns a copy of the mapping of this process that begins at base.
func mapped(base uintptr) ([]byte, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("find the vDSO: %w", err)
	}
	prefix := fmt.Appendf(nil, "%x-", base)
	for line := range bytes.Lines(maps) {
		rest, ok := bytes.CutPrefix(line, prefix)
		if !ok {
			continue
		}
		hex, _, _ := bytes.Cut(rest, []byte(" "))
		end, err := strconv.ParseUint(string(hex), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("parse /proc/self/maps: %w", err)
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		defer mem.Close()
		data := make([]byte, uintptr(end)-base)
		if _, err := mem.ReadAt(data, int64(base)); err != nil {
			return nil, fmt.Errorf("read the vDSO: %w", err)
		}
		return data, nil
	}
	return nil, errNoVDSO
}

// findVDSO finds the vDSO of the process by the auxiliary vector, which at this
// point is on top of its stack: argc, argv, 0, environment, 0, pairs. Reading
// /proc/PID/auxv or maps would take more rights than being the tracer.
func (t *Tracee) findVDSO() error {
	v, err := vdso()
	if err != nil {
		return err
	}
	at := uintptr(t.regs.Rsp)
	argc, err := t.word(at)
	if err != nil {
		return err
	}
	at += 8 * uintptr(argc+2)
	for {
		w, err := t.word(at)
		if err != nil {
			return err
		}
		at += 8
		if w == 0 {
			break
		}
	}
	for {
		key, err := t.word(at)
		if err != nil {
			return err
		}
		value, err := t.word(at + 8)
		if err != nil {
			return err
		}
		at += 16
		switch key {
		case 0:
			return errNoVDSO
		case atSysinfoEhdr:
			t.vdso = uintptr(value)
			var header [16]byte
			if err := t.Read(t.vdso, header[:]); err != nil {
				return err
			}
			if header != v.header {
				return errors.New("the vDSO of the process is not like the one of this program")
			}
			return nil
		}
	}
}

// Function returns the address of a function of the vDSO in the process, and
// false if this kernel's has none of that name.
func (t *Tracee) Function(name string) (uintptr, bool) {
	v, err := vdso()
	if err != nil {
		return 0, false
	}
	e, ok := v.symbols[name]
	return t.vdso + e.value, ok
}

// Redirect has the process find another function where it looks up one of the
// vDSO, the code of which stays as it is. It does nothing if there is none of
// that name.
//
// It alters the symbol table in the private copy of the page: libc and the
// runtimes of languages add what they find there to the address of the vDSO,
// modulo 2^64.
func (t *Tracee) Redirect(name string, to uintptr) error {
	v, err := vdso()
	if err != nil {
		return err
	}
	e, ok := v.symbols[name]
	if !ok {
		return nil
	}
	old, err := t.word(t.vdso + e.at)
	if err != nil {
		return err
	}
	if uintptr(old) != e.value {
		return fmt.Errorf("%s of process %d is redirected already", name, t.pid)
	}
	return t.Write(t.vdso+e.at, binary.NativeEndian.AppendUint64(nil, uint64(to-t.vdso)))
}

// Redirected returns where a running process finds a function of the vDSO. It
// takes the right to trace the process.
func Redirected(pid int, name string) (uintptr, error) {
	v, err := vdso()
	if err != nil {
		return 0, err
	}
	e, ok := v.symbols[name]
	if !ok {
		return 0, fmt.Errorf("the vDSO has no %s", name)
	}
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, fmt.Errorf("find the vDSO of process %d: %w", pid, err)
	}
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		if binary.NativeEndian.Uint64(auxv) != atSysinfoEhdr {
			continue
		}
		base := uintptr(binary.NativeEndian.Uint64(auxv[8:]))
		mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, fmt.Errorf("read the vDSO of process %d: %w", pid, err)
		}
		defer mem.Close()
		var b [8]byte
		if _, err := mem.ReadAt(b[:], int64(base+e.at)); err != nil {
			return 0, fmt.Errorf("read the vDSO of process %d: %w", pid, err)
		}
		return base + uintptr(binary.NativeEndian.Uint64(b[:])), nil
	}
	return 0, fmt.Errorf("process %d has no vDSO", pid)
}
