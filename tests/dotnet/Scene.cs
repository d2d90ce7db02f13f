// Stacks with methods that the runtime compiled, methods that were compiled ahead of time, native code between them, and handlers of exceptions. Each scene tells its own
// stack, as the runtime sees it, and waits in the C library.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

static class Native
{
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate int Comparer(IntPtr one, IntPtr other);

    [DllImport("libc")]
    public static extern void qsort(int[] numbers, UIntPtr count, UIntPtr size, Comparer compares);

    [DllImport("libc")]
    public static extern IntPtr read(int file, byte[] to, UIntPtr count);

    [DllImport("libc")]
    public static extern int gettid();
}

class Place<T>
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static void Goes<U>(T one, U other, Action then)
    {
        then();
        GC.KeepAlive(one);
        GC.KeepAlive(other);
    }
}

interface IStep { void Go(Action then); }

struct Step : IStep
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public void Go(Action then) { then(); }
}

static class Scene
{
    static int waits = 0;

    // The thread's own stack as the runtime sees it, and then no further.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Stops(string name)
    {
        string stack = Environment.StackTrace;
        lock (typeof(Scene))
        {
            Console.WriteLine("thread " + Native.gettid() + " " + name);
            Console.WriteLine(stack);
            Console.WriteLine("end");
            
            waits++;
        }
        Native.read(0, new byte[1], (UIntPtr)1);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Recurses(int depth, Action then)
    {
        if (depth == 0) { then(); return 1; }
        return Recurses(depth - 1, then) + depth;
    }

    static int Compares(IntPtr one, IntPtr other)
    {
        if (waits == 0) Place<string>.Goes("one", 3.0, () => Stops("callback"));
        return Marshal.ReadInt32(one) - Marshal.ReadInt32(other);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Sorts()
    {
        Native.Comparer compares = Compares;
        Native.qsort(new[] { 3, 1, 2 }, (UIntPtr)3, (UIntPtr)4, compares);
        GC.KeepAlive(compares);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Throws() { throw new InvalidOperationException("thrown"); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Cleans()
    {
        try { Throws(); }
        finally { Stops("finally"); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Catches()
    {
        try { Cleans(); }
        catch (InvalidOperationException) { Console.WriteLine("caught"); }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Filters()
    {
        try { Throws(); }
        catch (InvalidOperationException) when (Holds()) { Stops("catch"); }
    }

    static bool Holds() { return true; }

    static async Task<int> Inner()
    {
        await Task.Yield();
        Stops("async");
        return 1;
    }

    static async Task<int> Outer() { return await Inner() + 1; }

    static void Library()
    {
        // Code of the framework that was compiled beforehand, between two of ours.
        var numbers = new List<int> { 3, 1, 2 };
        numbers.Sort((one, other) => { if (waits < 1000) { waits = 1000; Stops("library"); } return one - other; });
    }

    static int Main(string[] arguments)
    {
        var step = new Step();
        switch (arguments[0])
        {
            case "callback": Recurses(3, () => ((IStep)step).Go(Sorts)); break;
            case "finally": Catches(); break;
            case "catch": Filters(); break;
            case "async": return Outer().GetAwaiter().GetResult();
            case "library": Recurses(1, Library); break;
            case "linq": Console.WriteLine(new[] { 2, 1 }.Select(n => { if (waits == 0) Stops("linq"); return n; }).OrderBy(n => n).ToArray().Length); break;
            case "thread":
                var thread = new Thread(() => Recurses(2, () => Stops("thread")));
                thread.Start();
                thread.Join();
                break;
        }
        return 0;
    }
}
