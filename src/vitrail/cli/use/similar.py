"""``vitrail similar``."""

from collections import Counter
from pathlib import Path

from vitrail.cli.console import Whole, note, report_unreadable, result, result_json
from vitrail.cli.flags import BatchSize, Images, Model, Precision
from vitrail.runtime.terminal import one_line


def similar(
    model: Model,
    images: Images,
    /,
    *,
    among: str,
    top: Whole = 10,
    out: Path | None = None,
    batch_size: BatchSize = 32,
    precision: Precision = None,
    json: bool = False,
) -> None:
    """Find the most similar images to each image, by the cosine of the vectors that the model's head reads.

    An image is not compared with itself. An image that cannot be read is reported and left out; the exit code is then 3.

    Parameters
    ----------
    among
        The folder or glob of the images to search.
    top
        Number of similar images for each image.
    out
        A folder to write, which must not exist: an HTML page with the results for the first 50 images.
    json
        One JSON document: a list of images, each with the most similar ones and their cosines.
    """
    from vitrail.checks import require_positive
    from vitrail.files import path_of, whole_folder
    from vitrail.runtime.output import name_of, require_free
    from vitrail.weights.locate import require_possible

    require_possible(model)  # before torch is imported
    folder = out and path_of(out)
    if folder is not None:
        require_free(folder)
    require_positive(**{"--top": top, "--batch-size": batch_size})
    from vitrail.cli.progress import counting
    from vitrail.data.readers.sources import image_files
    from vitrail.deploy.embed import embed_files, nearest
    from vitrail.deploy.vector_files import Vectors

    image_files([*images, among], note)  # a single note for both, since one folder may be in both
    queries, others = image_files(images), image_files([among])
    files = list(dict.fromkeys([*queries, *others]))
    embedded = Vectors(len(files))
    with counting("embedding") as progress:
        progress.begin("embedding", len(files))
        failures = embed_files(model, files, embedded, batch_size=batch_size, precision=precision, on_batch=progress.advance)
    place = {file: number for number, file in enumerate(embedded.images)}
    known = [file for file in others if file in place]
    real = [file.resolve() for file in known]
    often = Counter(real)
    table = embedded.table[[place[file] for file in known]]
    found = []
    for query in (query for query in queries if query in place):
        itself = query.resolve()  # the same file may have several names
        first = nearest(embedded.table[place[query]], table, top + often[itself])
        found.append((query, [(known[i], cosine) for i, cosine in first if real[i] != itself][:top]))
    if folder is not None:
        from vitrail.study.quality.similar import write_similar

        with whole_folder(folder, replace=False) as draft:
            write_similar(draft, found, title=f"Nearest among {name_of(among)}")
        note(f"page: {folder / 'report.html'}")
    if json:
        result_json(
            [{"image": str(query), "similar": [{"image": str(f), "cosine": c} for f, c in near]} for query, near in found]
        )
    else:
        for query, near in found:
            result(f"{one_line(query)}:")
            for file, cosine in near:
                result(f"  {cosine:6.3f}  {one_line(file)}")
    report_unreadable(failures)
